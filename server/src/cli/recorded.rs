//! A recording named instead of a program.

use std::path::Path;

use ridgeline_analysis::attribution;
use ridgeline_analysis::attribution::metrics::trace_steps::TraceSteps;
use ridgeline_analysis::graph::recorded::{NoGraph, Recorded};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;

use super::exit::Failure;
use crate::pipeline;

/// Reads a recording with the costs and the graph of one iteration.
pub(super) fn read(
    path: &Path,
) -> Result<(Recording, Profile, Result<Recorded, NoGraph>), Failure> {
    let recording = pipeline::load(path).map_err(|error| failure(path, &error.to_string()))?;
    let attributed = attribution::attribute_with_graph(&recording, None);
    let (profile, mut graph) = attributed.map_err(|error| failure(path, &error.to_string()))?;
    if let Ok(recorded) = &mut graph {
        recorded.notes.extend(recording.trace.truncation_note());
        let has_steps = TraceSteps::new(&recording.trace).is_some();
        if recording.manifest.is_none() && !has_steps {
            let note = "the trace has no steps, so all of it is treated as one iteration";
            recorded.notes.push(note.to_owned());
        }
    }
    Ok((recording, profile, graph))
}

/// The failure for a recording that cannot be analyzed.
pub(super) fn failure(path: &Path, why: &str) -> Failure {
    Failure::failed(
        format!("{}: {why}", path.display()),
        "Pass a script, a project, the folder of a finished run, or a trace",
    )
}
