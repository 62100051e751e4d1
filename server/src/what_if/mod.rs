//! What optimizations would bring to the newest measurement of a workspace.
//!
//! It is worked out from the recording, on the pool and when nothing else runs; nothing of the workspace
//! is run for it. A newer measurement ends it. After a run of this session single operators run in the
//! workspace's Python, where its person allowed it to run; a key ends those.
//!
//! What was found in a measurement comes of the same look. One of another project is looked at for that
//! alone, where a run began before it was done.

mod flow;
mod measure;
pub mod pairs;

use std::sync::Arc;

use ridgeline_analysis::whatif::facts::{Cluster, Probes};
use ridgeline_analysis::whatif::loading::workers_on;
use ridgeline_analysis::whatif::study::{Question, Study, Subject};
use tokio_util::sync::CancellationToken;

use crate::pipeline::{self, Iteration};
use crate::profiler::Profiled;

/// What was found out, or why nothing could be: a sentence without a full stop.
pub type Found = Result<Arc<Study>, String>;

/// What is known in a workspace.
#[derive(Debug, Default)]
pub struct WhatIf {
    /// What was found out, and the generation of the measurement that it is about.
    newest: Option<(u64, Found)>,
    /// The generation of the measurement that is being looked at, and what stops it.
    running: Option<(u64, CancellationToken)>,
    /// What stops the single operators that are run for it.
    probing: CancellationToken,
    /// Why the last measurement of a what-if came to nothing: a sentence.
    pub message: Option<String>,
}

impl WhatIf {
    /// What was found out about a measurement.
    pub fn of(&self, generation: u64) -> Option<&Found> {
        self.newest.as_ref().filter(|(of, _)| *of == generation).map(|(_, found)| found)
    }

    /// Whether a measurement was looked at to its end.
    pub fn is_looked_at(&self, generation: u64) -> bool {
        self.of(generation).is_some()
    }

    /// Whether it is known, or on its way.
    fn is_about(&self, generation: u64) -> bool {
        let running = self.running.as_ref().map(|(of, _)| *of);
        self.of(generation).is_some() || running == Some(generation)
    }

    /// Ends what is being worked out.
    pub fn stop(&mut self) {
        if let Some((_, cancel)) = self.running.take() {
            cancel.cancel();
        }
        self.stop_probing();
    }

    /// Ends what is run for it; it is worked out without.
    pub fn stop_probing(&self) {
        self.probing.cancel();
    }
}

impl Drop for WhatIf {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The workers that an edit gives a loader: as many as the prediction has, on this machine.
pub fn worker_count() -> u32 {
    let cores = std::thread::available_parallelism().ok();
    workers_on(cores.and_then(|cores| u32::try_from(cores.get()).ok()))
}

/// What what-ifs of a measurement start from. Where nobody asked before, it is at hand; else it reads
/// files and computes, which can take seconds.
///
/// # Errors
/// Why there is nothing to start from: a sentence without a full stop.
pub fn subject(profiled: &Profiled) -> Result<Subject, String> {
    let read = || -> Result<Iteration, String> {
        let folder = profiled.recording.as_deref();
        let folder = folder.ok_or_else(|| "its recording is not kept".to_owned())?;
        let recording = pipeline::load(folder).map_err(|error| error.to_string())?;
        Ok(Iteration::of(recording, &profiled.profile))
    };
    let iteration = profiled.iteration.take().map_or_else(read, Ok)?;
    pipeline::subject(iteration, &profiled.root, profiled.profile.clone())
}

/// What optimizations bring to a measurement, with what was run for it in earlier sessions. Nothing is
/// run now.
pub fn study_of(profiled: &Profiled, subject: &Subject) -> Found {
    let recording = profiled.recording.as_deref();
    let probes = recording.map(|recording| pipeline::kept_probes(recording, subject));
    study(subject, &probes.unwrap_or_default(), None, &|| false).map(Arc::new)
}

/// Works out what optimizations bring. It can take a second, and ends soon after `stop` says so.
///
/// # Errors
/// Why nothing can be predicted: a sentence without a full stop.
pub fn study(
    subject: &Subject,
    probes: &Probes,
    memory_limit: Option<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<Study, String> {
    let limit = memory_limit.into_iter().chain(subject.profile.memory.capacity_bytes).min();
    let question = Question {
        wanted: &[],
        memory_limit: limit.map(|bytes| bytes as f64),
        cluster: Cluster::default(),
        probes,
    };
    subject.study(&question, stop)
}
