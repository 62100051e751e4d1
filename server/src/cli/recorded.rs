//! A recording that a person named in place of a program.

use std::path::Path;

use ridgeline_analysis::attribution;
use ridgeline_analysis::graph::recorded::{NoGraph, Recorded};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;

use super::exit::Failure;
use crate::pipeline;

/// A recording, what an iteration of it costs, and its graph.
pub(super) fn read(
    path: &Path,
) -> Result<(Recording, Profile, Result<Recorded, NoGraph>), Failure> {
    let recording = pipeline::load(path).map_err(|error| failure(path, &error.to_string()))?;
    let attributed = attribution::attribute_with_graph(&recording, None);
    let (profile, graph) = attributed.map_err(|error| failure(path, &error.to_string()))?;
    Ok((recording, profile, graph))
}

/// Nothing can be said of what was named.
pub(super) fn failure(path: &Path, why: &str) -> Failure {
    Failure::failed(
        format!("{}: {why}", path.display()),
        "Pass a script, a project, the folder of a finished run, or a trace",
    )
}
