//! What optimizations would bring to the newest measurement of a workspace.
//!
//! A study has three steps, each a job of the [`Scheduler`](crate::scheduler::Scheduler). First findings are
//! worked out from the recording. Then, after a run of this session and if the person allowed the workspace
//! to run, single operators are timed in the workspace's Python (probes). At last the what-ifs are worked
//! out, and the findings again if the probes told something new. The first and the last step run nothing of
//! the workspace. A newer measurement ends a study; one that a run stopped goes on after it.
//!
//! The measurement of another project, whose study a run stopped, is studied for its findings only.

mod flow;
mod measure;
pub(crate) mod pairs;

use std::sync::Arc;

use ridgeline_analysis::optimize::facts::{Cluster, Probes};
use ridgeline_analysis::optimize::loading::workers_on;
use ridgeline_analysis::optimize::study::{Question, Study, Subject};

use crate::findings::Kept;
use crate::pipeline::{self, Iteration};
use crate::profiler::Profiled;
use crate::store::Store;

/// What was found out, or why nothing could be: a sentence without a full stop.
pub(crate) type Found = Result<Arc<Study>, String>;

/// What is known in a workspace.
#[derive(Debug, Default)]
pub(crate) struct WhatIf {
    /// What was found out, and the generation of the measurement that it is about.
    newest: Option<(u64, Found)>,
    /// The measurement that is being studied.
    study: Option<Progress>,
    /// Why the last measurement of a what-if came to nothing: a sentence.
    pub message: Option<String>,
}

/// How far the study of a measurement has come.
#[derive(Debug)]
struct Progress {
    generation: u64,
    /// Single operators run for it.
    may_probe: bool,
    /// What its findings were worked out from, and the probes known at that time.
    looked: Option<(Arc<Subject>, Arc<Probes>)>,
    /// What is known of single operators after they ran, or after it was decided not to run them.
    probes: Option<Arc<Probes>>,
}

/// What a look at a measurement found.
#[derive(Debug)]
pub(crate) struct Looked {
    /// What what-ifs start from, or why there is nothing to start from.
    subject: Result<Arc<Subject>, String>,
    /// Findings; `None` if there is nothing to work them out from.
    kept: Option<Kept>,
    /// What is known of single operators.
    known: Probes,
}

/// What a study found.
#[derive(Debug)]
pub(crate) struct Studied {
    /// Findings, if the probes have changed them.
    kept: Option<Kept>,
    /// What-ifs.
    found: Found,
}

impl WhatIf {
    /// What was found out about a measurement.
    pub(crate) fn of(&self, generation: u64) -> Option<&Found> {
        self.newest.as_ref().filter(|(of, _)| *of == generation).map(|(_, found)| found)
    }

    /// Whether a measurement was looked at to its end.
    pub(crate) fn is_looked_at(&self, generation: u64) -> bool {
        self.of(generation).is_some()
    }
}

/// The workers that an edit gives a loader: as many as the prediction has, on this machine.
pub(crate) fn worker_count() -> u32 {
    let cores = std::thread::available_parallelism().ok();
    workers_on(cores.and_then(|cores| u32::try_from(cores.get()).ok()))
}

/// What what-ifs of a measurement start from. Where nobody asked before, it is at hand; else it reads
/// files and computes, which can take seconds.
///
/// # Errors
/// Why there is nothing to start from: a sentence without a full stop.
pub(crate) fn subject(profiled: &Profiled) -> Result<Subject, String> {
    let read = || -> Result<Iteration, String> {
        let folder = profiled.recording.as_deref();
        let folder = folder.ok_or_else(|| "its recording was not kept".to_owned())?;
        let recording = pipeline::load(folder).map_err(|error| error.to_string())?;
        Ok(Iteration::of(recording, &profiled.profile))
    };
    let iteration = profiled.iteration.take().map_or_else(read, Ok)?;
    pipeline::subject(iteration, &profiled.root, profiled.profile.clone())
}

/// What optimizations bring to a measurement, with what was run for it in earlier sessions and what was
/// measured of them in the project. Nothing is run now.
pub(crate) fn study_of(profiled: &Profiled, subject: &Subject, store: Option<&Store>) -> Found {
    let recording = profiled.recording.as_deref();
    let probes = recording.map(|recording| pipeline::kept_probes(recording, subject));
    let mut found = study(subject, &probes.unwrap_or_default(), None, &|| false)?;
    correct(&mut found, profiled, store);
    Ok(Arc::new(found))
}

/// Corrects predictions by what was measured of the same optimizations in the project. It reads a file.
pub(crate) fn correct(found: &mut Study, profiled: &Profiled, store: Option<&Store>) {
    if let Some(store) = store {
        found.correct(&pairs::read_of_device(store, &profiled.root, &profiled.profile.device));
    }
}

/// Works out what optimizations bring. It can take a second, and ends soon after `stop` says so.
///
/// # Errors
/// Why nothing can be predicted: a sentence without a full stop.
pub(crate) fn study(
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
