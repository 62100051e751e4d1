//! From a recording to the iteration that what-ifs start from.

use std::path::Path;
use std::sync::Arc;

use ridgeline_analysis::attribution;
use ridgeline_analysis::graph::recorded::{NoGraph, Recorded};
use ridgeline_analysis::optimize::study::{RecordedRun, device_of};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::manifest::Manifest;

use crate::known_devices;
use crate::measured_rates;

/// The parts of a recording that what-ifs and findings are computed from.
#[derive(Debug)]
pub(crate) struct Iteration {
    recorded: Result<Recorded, NoGraph>,
    manifest: Option<Manifest>,
    ran_on_gpu: bool,
}

impl Iteration {
    /// Creates an iteration from a recording whose graph is known.
    pub(crate) fn new(recording: Recording, recorded: Result<Recorded, NoGraph>) -> Iteration {
        let ran_on_gpu = !recording.trace.activities.is_empty();
        Iteration { recorded, manifest: recording.manifest, ran_on_gpu }
    }

    /// Creates an iteration from a recording and its profile. May compute for seconds.
    pub(crate) fn of(recording: Recording, profile: &Profile) -> Iteration {
        let recorded = attribution::step_graph(&recording, profile);
        Iteration::new(recording, recorded)
    }
}

/// Returns the starting point of what-ifs for an iteration of the project at `root` with this
/// `profile`. Reads the project's configuration.
///
/// # Errors
/// Why nothing can be predicted from it: a sentence without a full stop.
pub(crate) fn recorded_run(
    iteration: Iteration,
    root: &Path,
    profile: Arc<Profile>,
) -> Result<RecordedRun, String> {
    let Iteration { recorded, manifest, ran_on_gpu } = iteration;
    let recorded = recorded.map_err(|error| error.to_string())?;
    let (mut table, _) = known_devices::of_project(root);
    measured_rates::add_to(&mut table, profile.device.is_simulated);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let device = device_of(&profile, ran_on_gpu, &table, cores);
    Ok(RecordedRun { recorded, profile, manifest, device })
}
