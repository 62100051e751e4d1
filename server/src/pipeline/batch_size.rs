//! Explores other batch sizes with estimates and short runs, which replace the number in the text.
//! No file of the project is touched, and nothing of the runs is stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::predict::batch_size::{
    Bounds, Capacity, Evidence, Failed, Question, max_runs_left, next_question,
};
use ridgeline_analysis::predict::gpu_batches::{ScaledStep, gpu_batches};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::batch_site::{Entry as SiteEntry, Project as _, batch_site};
use ridgeline_analysis::python::semantics::Refusal;
use ridgeline_gpu::agent::Entry;
use ridgeline_gpu::devices;
use tokio::sync::mpsc;

use super::batch_size_question::{Answer, Sweep, gap, run_of};
use super::plan::Plan;
use super::{Pipeline, blocking, or_cancelled, side_by_side};
use crate::batch::{Sources, SweepEffort, SweepEnd, SweepRequest, SweepResults};
use crate::consent::Permit;
use crate::machine_load::{self, BusyReason};
use crate::profiler::{Profiled, ProgressEvent};

/// The maximum expected time of a background run: its iterations, at the speed of the last run.
const BACKGROUND_RUN_LIMIT: Duration = Duration::from_secs(4);
/// The time limit of an exploration that the user requested. In the background, the budget is the
/// limit.
const REQUESTED_LIMIT: Duration = Duration::from_secs(600);

impl Pipeline {
    /// Returns what is known about other batch sizes before any is tried. It runs nothing.
    pub(crate) async fn find_batch_site(&self, request: &SweepRequest) -> Option<SweepResults> {
        self.initial_results(request).await.map(|(sweep, _, _)| sweep)
    }

    /// Returns whether something else needs the machine, or the GPU of this name.
    pub(crate) async fn machine_needed(&self, gpu: Option<&str>) -> Option<BusyReason> {
        if self.ignores_machine_load() { None } else { machine_load::busy_reason(gpu).await }
    }

    async fn initial_results(
        &self,
        request: &SweepRequest,
    ) -> Option<(SweepResults, Sources, Plan)> {
        let to_plan = super::server::plan_request(request.profile.clone()).ok()?;
        let plan = self.plan(to_plan).await.ok()?;
        // If the workspace has several projects, only the measured one can be compared.
        if plan.root != request.measured.root {
            return None;
        }
        let profile = request.measured.profile.clone();
        let in_use_bytes = if profile.device.kind == "cpu" { 0 } else { in_use(&profile).await };
        let look = results_without_run(plan.clone(), profile, request.memory_limit, in_use_bytes);
        let (sweep, sources) = blocking(look).await.ok()?;
        Some((sweep, sources, plan))
    }

    /// Determines the cost of other batch sizes, and sends each new result. Ends soon after its
    /// permit.
    pub(crate) async fn sweep_batch_sizes(
        &self,
        request: SweepRequest,
        results: mpsc::Sender<SweepResults>,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> SweepEnd {
        let Some((mut sweep, sources, plan)) = self.initial_results(&request).await else {
            return SweepEnd::Done;
        };
        let profile = request.measured.profile.clone();
        if let Some(known) = &request.known {
            sweep.evidence.clone_from(&known.evidence);
            sweep.first_operators.clone_from(&known.first_operators);
            sweep.gpu_batches.clone_from(&known.gpu_batches);
        }
        let run = sweep.evidence.runs.first();
        let base = run.map(|run| (run.batch, run.samples));
        if results.send(sweep.clone()).await.is_err() {
            return SweepEnd::Done;
        }
        // A provider gets its batch size as an argument, wherever that is written.
        let is_provider = matches!(plan.entry, Entry::Provider { .. });
        let site = sweep.site.clone().ok();
        let (Some(base), true) = (base, is_provider || site.is_some()) else {
            return SweepEnd::Done;
        };
        let gap = site.filter(|_| !is_provider).and_then(|site| gap(&site, &sources));
        let is_background = request.effort != SweepEffort::Runs;
        let agent = async {
            let interpreter = self.interpreter(&plan).await?;
            self.agent(&plan, &interpreter).await
        };
        let agent = or_cancelled(permit.token(), agent).await;
        if !permit.is_valid() {
            return SweepEnd::Done;
        }
        let Ok(agent) = agent else {
            sweep.message =
                Some("No Python with torch was found to run other batch sizes.".to_owned());
            // If the receiver is gone, nobody needs it.
            let _ = results.send(sweep).await;
            return SweepEnd::Done;
        };
        let recording = request.measured.recording.as_deref();
        let batches = recording.map(|folder| folder.join("batch.json"));
        let explorer = Sweep {
            pipeline: self,
            agent,
            profile: profile.clone(),
            gap,
            base,
            batches: batches.filter(|file| file.is_file()),
            permit: &permit,
            plan,
        };
        let iterations = explorer.iterations();
        let count = iterations.warmup + iterations.timed + iterations.profiled;
        let expected = profile.iteration.time_ns * f64::from(count);
        let bounds = Bounds {
            capacity: sweep.capacity,
            estimates: true,
            runs: match request.effort {
                SweepEffort::Estimates => false,
                SweepEffort::ShortRuns => expected < BACKGROUND_RUN_LIMIT.as_nanos() as f64,
                SweepEffort::Runs => true,
            },
            side_by_side: side_by_side::is_supported(&explorer.agent, &request.measured).await,
        };
        let gpu = (profile.device.kind == "cuda").then_some(profile.device.name.as_str());
        // The caller has checked the machine before the first question, and limits background work.
        let (mut is_first, until) = (true, Instant::now() + REQUESTED_LIMIT);
        while let Some(question) = next_question(&sweep.evidence, base.0, &bounds) {
            if !permit.is_valid() || Instant::now() > until {
                return SweepEnd::Done;
            }
            if is_background && !is_first && self.machine_needed(gpu).await.is_some() {
                return SweepEnd::MachineNeeded;
            }
            is_first = false;
            let left = max_runs_left(&sweep.evidence, base.0, &bounds);
            permit.set_description(stage(question, left));
            // Progress that is not received in time is dropped.
            let _ = progress.try_send(ProgressEvent { stage: stage(question, left), share: None });
            let before = sweep.evidence.in_turns.len();
            match explorer.answer(question, before).await {
                Ok(Answer::Run(run)) => sweep.evidence.runs.push(run),
                Ok(Answer::SideBySide(runs, rounds)) => {
                    sweep.evidence.runs.extend(runs);
                    sweep.evidence.in_turns.push(rounds);
                }
                Ok(Answer::Estimate(estimate, operators)) => {
                    sweep.evidence.estimates.push(estimate);
                    add_operators(&mut sweep, *operators, &request.measured).await;
                }
                Err(reason) => sweep.evidence.failed.push(Failed { question, reason }),
            }
            if !permit.is_valid() {
                return SweepEnd::Done;
            }
            sweep.message = message(&sweep.evidence, &bounds);
            if results.send(sweep.clone()).await.is_err() {
                return SweepEnd::Done;
            }
        }
        SweepEnd::Done
    }
}

/// Adds the operators of an estimate. Two of them show how an iteration grows, so that other GPUs can
/// be predicted with any batch size.
async fn add_operators(sweep: &mut SweepResults, operators: OpList, measured: &Profiled) {
    let comparison = measured.device_comparison.clone().filter(|_| sweep.gpu_batches.is_none());
    let Some(comparison) = comparison else { return };
    let Some(first) = sweep.first_operators.take() else {
        sweep.first_operators = Some(Arc::new(operators));
        return;
    };
    let predict = move || {
        // A program that runs other operators with another batch size cannot be predicted.
        let scaled = ScaledStep::between(&first, &operators).ok()?;
        gpu_batches(&comparison, &scaled)
    };
    sweep.gpu_batches = blocking(predict).await.ok().flatten().map(Arc::new);
}

/// Describes what is being tried and the number of runs left, for the user.
fn stage(question: Question, left: usize) -> String {
    let what = match question {
        Question::Estimate(batch) => format!("estimating batch size {batch}"),
        Question::Run(batch) => format!("running batch size {batch}"),
        Question::SideBySide { smaller, larger } => {
            let others: Vec<String> =
                smaller.into_iter().chain(larger).map(|batch| batch.to_string()).collect();
            format!("running batch sizes {} next to the current one", others.join(" and "))
        }
    };
    match left {
        0 => what,
        1 => format!("{what} (1 run left)"),
        left => format!("{what} (up to {left} runs left)"),
    }
}

/// Returns what is known before anything runs.
fn results_without_run(
    plan: Plan,
    profile: Arc<Profile>,
    memory_limit: Option<u64>,
    in_use_bytes: u64,
) -> impl FnOnce() -> (SweepResults, Sources) {
    move || {
        let root = plan.root.canonicalize().unwrap_or_else(|_| plan.root.clone());
        let sources = Sources::new(&root, []);
        let mut entry = site_entry(&plan, &sources);
        entry.measured = profile.iteration.batch_size;
        let site = batch_site(&sources, &entry);
        entry.measured = None;
        entry.chosen = site.as_ref().ok().map(|site| site.choice);
        let samples = profile.iteration.batch_size.unwrap_or_default();
        let batch = site.as_ref().map_or(samples, |site| site.value);
        let run = run_of(&profile, batch);
        let runs = Vec::from_iter(run.filter(|run| run.batch > 0 && run.samples > 0));
        let site = match (site, runs.is_empty()) {
            (Ok(_), true) => Err(Refusal {
                message: "the last run did not report the number of samples per iteration"
                    .to_owned(),
                at: None,
            }),
            (site, _) => site,
        };
        let capacity = capacity(&plan, &profile, memory_limit, in_use_bytes);
        let evidence = Evidence { runs, ..Evidence::default() };
        let sweep = SweepResults {
            root,
            entry,
            site,
            evidence,
            capacity,
            message: None,
            first_operators: None,
            gpu_batches: None,
        };
        (sweep, sources)
    }
}

/// Returns the program as input for the search for its batch size.
pub(super) fn site_entry(plan: &Plan, sources: &Sources) -> SiteEntry {
    let inside = |path: &Path| {
        let inside = path.strip_prefix(&plan.root).unwrap_or(path);
        inside.to_string_lossy().replace('\\', "/")
    };
    let request = plan.run_request(PathBuf::new());
    let path = match &plan.entry {
        Entry::Script { path } | Entry::Provider { path } => inside(path),
        Entry::Module { .. } if plan.file().is_some() => {
            plan.file().map(inside).unwrap_or_default()
        }
        Entry::Module { name } => {
            let base = name.replace('.', "/");
            let file = format!("{base}.py");
            if sources.text(&file).is_some() { file } else { format!("{base}/__main__.py") }
        }
    };
    SiteEntry {
        path,
        provider: matches!(plan.entry, Entry::Provider { .. }),
        working_directory: inside(&request.cwd),
        arguments: request.args,
        environment: request.env.into_keys().collect(),
        configured: request.batch_size,
        ..SiteEntry::default()
    }
}

/// Returns the memory that an iteration may use: the limit that the user set, or the device's
/// memory that is not in use.
fn capacity(plan: &Plan, profile: &Profile, limit: Option<u64>, taken: u64) -> Option<Capacity> {
    let device = profile.memory.capacity_bytes;
    if profile.device.kind == "cpu" {
        // The supervisor stops a run beyond the configuration's limit.
        let run_limit = plan.run_request(PathBuf::new()).limits.memory_bytes;
        let bytes = [device, Some(run_limit), limit].into_iter().flatten().min()?;
        return Some(Capacity { bytes, taken: 0 });
    }
    let free = device.map(|device| device.saturating_sub(taken));
    match (free, limit) {
        // The limit applies to the iteration, whatever other programs use.
        (Some(free), Some(limit)) if limit < free => Some(Capacity { bytes: limit, taken: 0 }),
        (None, Some(limit)) => Some(Capacity { bytes: limit, taken: 0 }),
        _ => Some(Capacity { bytes: device?, taken }),
    }
}

/// Returns the GPU memory in use now, in bytes. The query has a timeout, because a driver may hang.
async fn in_use(profile: &Profile) -> u64 {
    let devices = devices::query_within(Duration::from_secs(2)).await;
    let mut found = devices.gpus.into_iter().filter(|gpu| gpu.name == profile.device.name);
    found.find_map(|gpu| gpu.used_bytes).unwrap_or_default()
}

/// Returns a message for the user about a batch size that could not be tried.
fn message(evidence: &Evidence, bounds: &Bounds) -> Option<String> {
    // Failed side-by-side runs are not reported: these batch sizes then run one after another, or
    // fail again with a reason.
    let is_reported = |failed: &&Failed| !matches!(failed.question, Question::SideBySide { .. });
    let failed = evidence.failed.iter().rev().find(is_reported)?;
    Some(match failed.question {
        Question::Estimate(_) if evidence.estimates.is_empty() => format!(
            "This program cannot run on fake tensors, so peak memory comes only from runs: {}",
            failed.reason
        ),
        Question::Estimate(batch) => {
            format!("Batch size {batch} could not be estimated: {}", failed.reason)
        }
        Question::Run(batch) if bounds.runs => {
            format!("Batch size {batch} could not be run: {}", failed.reason)
        }
        Question::Run(_) | Question::SideBySide { .. } => return None,
    })
}
