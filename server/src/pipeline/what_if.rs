//! From a recording to the iteration that what-ifs start from.

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::attribution;
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::whatif::study::{Subject, device_of};

use crate::known_devices;

/// What what-ifs of a recording start from, of the project at `root`; `profile` is what it costs. It
/// computes for up to seconds, and reads the project's configuration.
///
/// # Errors
/// Why nothing can be predicted from it: a sentence without a full stop.
pub fn subject(
    recording: Recording,
    root: &Path,
    profile: Arc<Profile>,
) -> Result<Subject, String> {
    let recorded = attribution::step_graph(&recording, &profile);
    let recorded = recorded.map_err(|error| error.to_string())?;
    let (table, _) = known_devices::of_project(root);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let ran_on_gpu = !recording.trace.activities.is_empty();
    let device = device_of(&profile, ran_on_gpu, &table, cores);
    Ok(Subject { recorded, profile, manifest: recording.manifest, device })
}
