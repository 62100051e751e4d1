//! What-ifs: the estimated savings of optimizations, for the newest measurement of a workspace.
//!
//! A study has three steps, each a job of the [`Scheduler`](crate::scheduler::Scheduler). First,
//! findings are computed from the recording. Second, single operators are timed in the workspace's
//! Python (probes) and edited programs run on fake tensors for their memory, but only after a run of this session and if the user allowed the workspace to
//! run. Third, the what-ifs are computed, and the findings again if the probes added information.
//! The first and the last step run no workspace code. A newer measurement ends a study. A study
//! that a run stopped continues after the run.
//!
//! If a run stops the study of another project's measurement, only its findings are computed
//! afterwards.

mod applied;
mod flow;
mod measure;
pub(crate) mod pairs;

use std::sync::Arc;

use ridgeline_analysis::optimize::facts::{Cluster, Probes};
use ridgeline_analysis::optimize::loading::workers_on;
use ridgeline_analysis::optimize::study::{RecordedRun, Study, StudyOptions};

use self::applied::{Previous, Texts};
use crate::findings::FindingSet;
use crate::pipeline::{self, Iteration};
use crate::profiler::Profiled;
use crate::store::Store;

/// A finished study, or the reason why there is none: a sentence without a full stop.
pub(crate) type StudyOutcome = Result<Arc<Study>, String>;

/// The what-ifs of a workspace.
#[derive(Debug, Default)]
pub(crate) struct WhatIf {
    /// The result, and the generation of the measurement it belongs to.
    newest: Option<(u64, StudyOutcome)>,
    /// The study in progress.
    study: Option<Progress>,
    /// Why the last measurement of a what-if failed: a sentence.
    pub message: Option<String>,
    /// The texts of the newest measurement, and its generation.
    texts: Option<(u64, Texts)>,
    /// The measurement before the newest one, with its predictions.
    previous: Option<Previous>,
}

/// The progress of a study.
#[derive(Debug)]
struct Progress {
    generation: u64,
    /// Whether single operators may be timed for it.
    may_probe: bool,
    /// The inputs of its findings: the subject, and the probes known at that time.
    inputs: Option<(Arc<RecordedRun>, Arc<Probes>)>,
    /// The timings of single operators, set once they were timed or it was decided not to time
    /// them.
    probes: Option<Arc<Probes>>,
}

/// Result of the first step.
#[derive(Debug)]
pub(crate) struct FindingsStep {
    /// The starting point of what-ifs, or the reason why there is none.
    recorded: Result<Arc<RecordedRun>, String>,
    /// Findings, or `None` if there is no data for them.
    findings: Option<FindingSet>,
    /// The known timings of single operators.
    known: Probes,
    /// The texts that ran, if they are still on disk.
    texts: Option<Texts>,
    /// How the measurement compares with the prediction, if an optimization was applied: a sentence without a full stop.
    comparison: Option<String>,
}

/// Result of the last step.
#[derive(Debug)]
pub(crate) struct StudyResult {
    /// Findings, if the probes changed them.
    findings: Option<FindingSet>,
    outcome: StudyOutcome,
}

impl WhatIf {
    /// Keeps what is needed to compare the next measurement with the predictions for this one.
    pub(crate) fn keep_previous(&mut self, newest: Option<&(u64, Arc<Profiled>)>) {
        let kept = newest.and_then(|(generation, measured)| {
            let study = self.of(*generation)?.as_ref().ok()?.clone();
            let (_, texts) = self.texts.take_if(|(of, _)| of == generation)?;
            Some(Previous { measured: measured.clone(), study, texts })
        });
        self.previous = kept;
    }

    /// The result for a measurement.
    pub(crate) fn of(&self, generation: u64) -> Option<&StudyOutcome> {
        self.newest.as_ref().filter(|(of, _)| *of == generation).map(|(_, found)| found)
    }

    /// Whether the study of a measurement is complete.
    pub(crate) fn is_complete(&self, generation: u64) -> bool {
        self.of(generation).is_some()
    }
}

/// The number of workers that an edit sets for a data loader on this machine, as in the prediction.
pub(crate) fn worker_count() -> u32 {
    let cores = std::thread::available_parallelism().ok();
    workers_on(cores.and_then(|cores| u32::try_from(cores.get()).ok()))
}

/// Computes the starting point of a measurement's what-ifs. The first call uses the iteration in
/// memory. Later calls read the recording, which can take seconds.
///
/// # Errors
/// The reason why there is none, as a sentence without a full stop.
pub(crate) fn recorded_run(profiled: &Profiled) -> Result<RecordedRun, String> {
    let read = || -> Result<Iteration, String> {
        let folder = profiled.recording.as_deref();
        let folder = folder.ok_or_else(|| "its recording was not kept".to_owned())?;
        let recording = pipeline::load(folder).map_err(|error| error.to_string())?;
        Ok(Iteration::of(recording, &profiled.profile))
    };
    let iteration = profiled.iteration.take().map_or_else(read, Ok)?;
    pipeline::recorded_run(iteration, &profiled.root, profiled.profile.clone())
}

/// The estimated savings for a measurement, with the probes of earlier sessions and the project's
/// measured what-ifs. Runs nothing.
pub(crate) fn study_of(
    profiled: &Profiled,
    recorded_run: &RecordedRun,
    store: Option<&Store>,
) -> StudyOutcome {
    let recording = profiled.recording.as_deref();
    let probes = recording.map(|recording| pipeline::stored_probes(recording, recorded_run));
    let mut found = study(recorded_run, &probes.unwrap_or_default(), None, &|| false)?;
    correct(&mut found, profiled, store);
    Ok(Arc::new(found))
}

/// Corrects predictions with the estimated memory of edited programs, and with the project's measurements of the same
/// optimizations. Reads files.
pub(crate) fn correct(found: &mut Study, profiled: &Profiled, store: Option<&Store>) {
    if let Some(recording) = &profiled.recording {
        found.correct_memory(&pipeline::edited_peaks(recording));
    }
    if let Some(store) = store {
        found.correct(&pairs::read_of_device(store, &profiled.root, &profiled.profile.device));
    }
}

/// Computes the savings of optimizations. It can take a second, and ends soon after `stop` returns
/// true.
///
/// # Errors
/// The reason why nothing can be predicted, as a sentence without a full stop.
pub(crate) fn study(
    recorded_run: &RecordedRun,
    probes: &Probes,
    memory_limit: Option<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<Study, String> {
    let limit = memory_limit.into_iter().chain(recorded_run.profile.memory.capacity_bytes).min();
    let question = StudyOptions {
        optimizations: &[],
        memory_limit: limit.map(|bytes| bytes as f64),
        cluster: Cluster::default(),
        probes,
    };
    recorded_run.study(&question, stop)
}
