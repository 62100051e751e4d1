//! Estimates of unsaved text from the agent's list of its operators.
//!
//! The list of the saved text, which the estimate is scaled by, is created once and kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::devices::cpu::cpu;
use ridgeline_analysis::devices::device_spec::DeviceSpec;
use ridgeline_analysis::operators::machine_costs::MachineCosts;
use ridgeline_analysis::operators::op_cost::Options;
use ridgeline_analysis::operators::op_list::{OpList, Outcome as ListOutcome};
use ridgeline_analysis::predict::live::{self, MeasuredText, Text};
use ridgeline_analysis::present::failure::run::RunFacts;
use ridgeline_analysis::present::failure::{FailureFrame, RunFailure};
use ridgeline_analysis::profile::{Baseline, Profile};
use ridgeline_analysis::python::{SourceIndex, fingerprint};
use ridgeline_analysis::recording::manifest::Failure;
use ridgeline_gpu::agent::{
    Agent, Claim, EstimateRequest as AgentEstimateRequest, Outcome as AgentOutcome, RunLimits,
    RunOutcome,
};
use ridgeline_gpu::devices;
use ridgeline_gpu::interpreter::Interpreter;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outcome::{Outcome, Problem, ProblemKind};
use super::plan::Plan;
use super::server::plan_request;
use super::unsaved::Unsaved;
use super::{Pipeline, blocking, files_problem, or_cancelled, recording};
use crate::documents::text_on_disk;
use crate::known_devices;
use crate::live::{EstimateOutcome, EstimateRequest, Estimated, Gap};
use crate::measured_rates;
use crate::profiler::{PendingIteration, Profiled};

/// The time limit for unsaved text in seconds. A loop that is being written may not end.
const SECONDS: u64 = 10;
/// The agent's operator list.
const LIST: &str = "ops.json";
/// The batches that a run took from its loaders.
const BATCHES: &str = "batch.json";
/// The maximum number of lists of saved texts that are kept.
const SAVED_LIST_LIMIT: usize = 4;

/// The operator list of a saved text.
#[derive(Clone, Debug)]
pub(super) struct SavedList {
    root: PathBuf,
    claim: Claim,
    /// Fingerprints of the text, by file.
    files: BTreeMap<String, Vec<u32>>,
    list: Arc<OpList>,
}

/// The device to estimate for.
struct Target {
    claim: Claim,
    device: DeviceSpec,
    /// The device's name, if the program ran on another one.
    name: Option<String>,
    /// The measurement on this device.
    measured: Option<Arc<Profiled>>,
}

impl Pipeline {
    /// Estimates the cost of a project's unsaved text. Ends soon after `cancel`.
    pub(crate) async fn estimate(
        &self,
        request: EstimateRequest,
        cancel: &CancellationToken,
    ) -> EstimateOutcome {
        match self.estimate_to_end(request, cancel).await {
            Ok(outcome) => outcome,
            Err(Outcome::Cancelled) => EstimateOutcome::Cancelled,
            Err(Outcome::Failed(failed)) => {
                EstimateOutcome::Failed { failure: failed.failure, root: failed.root }
            }
            // Whether a workspace trains a model, and with which script, is reported by runs.
            Err(Outcome::Choose { .. } | Outcome::Measured(_)) => EstimateOutcome::Nothing,
            Err(Outcome::Problem(problem)) if problem.kind == ProblemKind::NothingToRun => {
                EstimateOutcome::Nothing
            }
            Err(Outcome::Problem(problem)) => EstimateOutcome::Unavailable {
                message: format!("No estimate: {}", problem.message()),
            },
        }
    }

    async fn estimate_to_end(
        &self,
        request: EstimateRequest,
        cancel: &CancellationToken,
    ) -> Result<EstimateOutcome, Outcome> {
        let to_plan = plan_request(request.profile.clone()).map_err(unavailable)?;
        let plan = self.plan(to_plan).await?;
        let root = plan.root.clone();
        let texts = request.texts;
        let unsaved = blocking(move || Unsaved::of(&root, texts)).await?;
        let measured = request.measured.iter().find(|profiled| profiled.root == plan.root);
        let saved_is_measured = match measured.cloned() {
            Some(measured) => blocking(move || is_on_disk(&measured)).await?,
            None => false,
        };
        // This text has just run. Its operators are listed once the user changes it.
        if saved_is_measured && unsaved.overlay.is_empty() && request.target.is_none() {
            return Ok(EstimateOutcome::Unchanged { root: plan.root.clone() });
        }
        let interpreter = or_cancelled(cancel, self.interpreter(&plan)).await?;
        let agent = or_cancelled(cancel, self.agent(&plan, &interpreter)).await?;
        let target = choose_target(&plan.root, measured, request.target.as_deref(), &agent).await?;
        // Those of another GPU would not apply to a target.
        let machine_costs =
            if target.name.is_none() { request.machine_costs } else { MachineCosts::default() };
        let job = Job {
            pipeline: self,
            plan: &plan,
            agent: &agent,
            target: &target,
            machine_costs: &machine_costs,
            cancel,
        };

        let before = job.before(saved_is_measured).await?;
        let Some(before) = before.as_ref().filter(|_| unsaved.overlay.is_empty()) else {
            if target.measured.is_some() && before.is_none() {
                return Err(unavailable(
                    "the saved code is not the code that was measured; run it to update".to_owned(),
                ));
            }
            let now = match job.list(unsaved.overlay.clone()).await? {
                Listing::Complete(list) => list,
                Listing::Endless(at) => {
                    let root = plan.root.clone();
                    return Ok(EstimateOutcome::Endless { at, root, seconds: SECONDS });
                }
            };
            if unsaved.overlay.is_empty() {
                job.store_list(&now).await?;
            }
            return job.finish(&interpreter, before, now, unsaved).await;
        };
        if target.measured.is_some() && saved_is_measured {
            return Ok(EstimateOutcome::Unchanged { root: plan.root.clone() });
        }
        let (list, before) = (before.list.clone(), Some(before.clone()));
        job.finish(&interpreter, before, list, unsaved).await
    }
}

impl Pipeline {
    /// Estimates the peak memory of a measured program with other texts in place of its files, in bytes. Returns `None`
    /// if they do not complete an iteration.
    ///
    /// # Errors
    /// If the files are no longer those that were measured, or the texts cannot run.
    pub(super) async fn peak_with(
        &self,
        plan: &Plan,
        measured: &Arc<Profiled>,
        overlay: BTreeMap<String, String>,
        cancel: &CancellationToken,
    ) -> Result<Option<u64>, Outcome> {
        let of_disk = measured.clone();
        if !blocking(move || is_on_disk(&of_disk)).await? {
            return Err(unavailable("the saved code is not the code that was measured".to_owned()));
        }
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        let agent = or_cancelled(cancel, self.agent(plan, &interpreter)).await?;
        let target = choose_target(&plan.root, Some(measured), None, &agent).await?;
        let machine_costs = &MachineCosts::default();
        let job =
            Job { pipeline: self, plan, agent: &agent, target: &target, machine_costs, cancel };
        let before = job.before(true).await?;
        let Listing::Complete(now) = job.list(overlay.clone()).await? else { return Ok(None) };
        if now.outcome != ListOutcome::Complete {
            return Ok(None);
        }
        let unsaved = Unsaved::replaced(overlay);
        let estimated = job.finish(&interpreter, before, now, unsaved).await?;
        let EstimateOutcome::Estimated(estimated) = estimated else { return Ok(None) };
        Ok(Some(estimated.profiled.profile.memory.peak_bytes).filter(|bytes| *bytes > 0))
    }
}

/// One estimate and its inputs.
struct Job<'a> {
    pipeline: &'a Pipeline,
    plan: &'a Plan,
    agent: &'a Agent,
    target: &'a Target,
    machine_costs: &'a MachineCosts,
    cancel: &'a CancellationToken,
}

/// The result of listing a text's operators.
enum Listing {
    Complete(Arc<OpList>),
    Endless(Option<FailureFrame>),
}

impl Job<'_> {
    /// Returns the operators of the saved text, which the estimate is scaled by or compared with,
    /// or `None` if they are not available.
    async fn before(&self, saved_is_measured: bool) -> Result<Option<SavedList>, Outcome> {
        let saved_lists = self.pipeline.saved_lists.lock().await;
        let known = saved_lists
            .iter()
            .find(|saved| saved.root == self.plan.root && saved.claim == self.target.claim);
        let known = known.cloned();
        drop(saved_lists);
        if let Some(measured) = &self.target.measured {
            if let Some(known) = known.filter(|saved| saved.is_of(&measured.profile)) {
                return Ok(Some(known));
            }
            if !saved_is_measured {
                return Ok(None);
            }
            return match self.list(BTreeMap::new()).await? {
                Listing::Complete(list) => Ok(Some(self.store_list(&list).await?)),
                Listing::Endless(_) => Err(unavailable(format!(
                    "the saved code did not complete an iteration in {SECONDS} s without data"
                ))),
            };
        }
        let Some(known) = known else { return Ok(None) };
        let (root, files) = (self.plan.root.clone(), known.files.clone());
        let is_current = blocking(move || {
            files.iter().all(|(path, text)| {
                text_on_disk(&root.join(path)).is_some_and(|now| fingerprint(&now) == *text)
            })
        });
        Ok(is_current.await?.then_some(known))
    }

    /// Stores the list of the saved text.
    async fn store_list(&self, list: &Arc<OpList>) -> Result<SavedList, Outcome> {
        let (root, paths) = (self.plan.root.clone(), list.files.clone());
        let files = blocking(move || {
            let text = |path: &String| Some((path.clone(), text_on_disk(&root.join(path))?));
            let texts = paths.iter().filter_map(text);
            texts.map(|(path, text)| (path, fingerprint(&text))).collect()
        });
        let saved = SavedList {
            root: self.plan.root.clone(),
            claim: self.target.claim,
            files: files.await?,
            list: list.clone(),
        };
        let mut saved_lists = self.pipeline.saved_lists.lock().await;
        saved_lists.retain(|other| other.root != saved.root || other.claim != saved.claim);
        saved_lists.insert(0, saved.clone());
        saved_lists.truncate(SAVED_LIST_LIMIT);
        Ok(saved)
    }

    /// Runs a text on fake tensors.
    async fn list(&self, overlay: BTreeMap<String, String>) -> Result<Listing, Outcome> {
        let store = self.pipeline.store().clone();
        let root = self.plan.root.clone();
        let folder = blocking(move || store.new_estimate(&root)).await?.map_err(files_problem)?;
        let mut run = self.plan.run_request(folder.path().to_owned());
        run.overlay = overlay;
        let seconds = SECONDS.min(run.limits.seconds);
        run.limits = RunLimits { seconds, ..run.limits };
        let recording = self.target.measured.as_ref().and_then(|it| it.recording.clone());
        let batches = recording.map(|recording| recording.join(BATCHES));
        let request = AgentEstimateRequest {
            run,
            claim: self.target.claim,
            batches: batches.filter(|batches| batches.is_file()),
            low_priority: true,
        };
        // Progress is not displayed, because this ends soon.
        let (events, _) = mpsc::channel(1);
        let started = Instant::now();
        let ended = self.agent.estimate(request, events, self.cancel.clone()).await;
        // The agent writes the operators so far shortly before its time limit.
        let is_over_time = started.elapsed() >= Duration::from_secs(seconds) * 4 / 5;
        if ended.outcome == AgentOutcome::Timeout {
            return Ok(Listing::Endless(ended.frames.last().map(|frame| FailureFrame {
                path: frame.path.clone(),
                line: frame.line,
                name: frame.name.clone(),
            })));
        }
        let root = self.plan.root.clone();
        let is_short = ended.outcome == AgentOutcome::Short;
        let list = blocking(move || read_list(&root, folder.path(), &ended)).await?;
        match list {
            list if is_short && is_over_time => {
                Ok(Listing::Endless(list.ok().as_ref().and_then(last_line)))
            }
            Ok(list) if list.outcome == ListOutcome::NoIteration => {
                Err(unavailable("the code ends without an iteration".to_owned()))
            }
            Ok(list) if list.ops.is_empty() => {
                let why = list.notes.first().cloned();
                Err(unavailable(why.unwrap_or_else(|| "no operators ran".to_owned())))
            }
            list => list.map(|list| Listing::Complete(Arc::new(list))),
        }
    }

    /// Creates the profile.
    async fn finish(
        &self,
        interpreter: &Interpreter,
        before: Option<SavedList>,
        now: Arc<OpList>,
        unsaved: Unsaved,
    ) -> Result<EstimateOutcome, Outcome> {
        let (root, device) = (self.plan.root.clone(), self.target.device.clone());
        let (name, measured) = (self.target.name.clone(), self.target.measured.clone());
        let (interpreter, machine_costs) = (interpreter.clone(), self.machine_costs.clone());
        let outcome = blocking(move || {
            let before_list = before.map(|saved| saved.list);
            let texts = unsaved.texts(&root, &now, measured.as_deref());
            let profile = profile(
                &now,
                before_list.as_deref(),
                measured.as_deref(),
                &texts,
                &device,
                name,
                &machine_costs,
            );
            let gaps = gaps(&now);
            let read = recording::LoadedRecording {
                profile,
                device_comparison: None,
                compiled_regions: 0,
                iteration: PendingIteration::default(),
            };
            let mut profiled = recording::locate(read, &root, Some(&interpreter), &root);
            // Nothing was recorded.
            (profiled.recording, profiled.log, profiled.when_unix_ms) = (None, None, None);
            EstimateOutcome::Estimated(Box::new(Estimated { profiled, gaps }))
        });
        outcome.await
    }
}

fn profile(
    now: &OpList,
    before: Option<&OpList>,
    measured: Option<&Profiled>,
    texts: &BTreeMap<String, SourceIndex>,
    device: &DeviceSpec,
    target: Option<String>,
    machine_costs: &MachineCosts,
) -> Profile {
    let texts: Vec<Text<'_>> = texts.iter().map(|(path, index)| Text { path, index }).collect();
    let measured = measured
        .zip(before)
        .map(|(measured, operators)| MeasuredText { profile: &measured.profile, operators });
    let input = live::Input {
        measured,
        operators: now,
        texts: &texts,
        device,
        options: Options::default(),
        machine_costs,
        target,
        before: None,
    };
    // Without a measurement, changes are relative to the estimate of the saved text.
    let saved = before.filter(|_| measured.is_none()).map(|operators| {
        Baseline::of(&live::estimate(&live::Input { operators, ..input.clone() }))
    });
    live::estimate(&live::Input { before: saved, ..input })
}

fn gaps(list: &OpList) -> Vec<Gap> {
    let gap = |one: &ridgeline_analysis::operators::op_list::Unsupported| {
        let path = list.files.get(one.file as usize)?.clone();
        let message = format!(
            "Not estimated: {} cannot run without data ({}). Measured costs are kept",
            one.operator, one.message
        );
        let at = FailureFrame { path, line: one.line, name: String::new() };
        Some(Gap { at, message })
    };
    let mut gaps: Vec<Gap> = list.unsupported.iter().filter_map(gap).collect();
    gaps.dedup();
    gaps
}

/// Returns the device to estimate for: the one of the measurement, else this machine's GPU or the
/// one that the user chose, else this CPU.
async fn choose_target(
    root: &Path,
    measured: Option<&Arc<Profiled>>,
    wanted: Option<&str>,
    agent: &Agent,
) -> Result<Target, Outcome> {
    let root = root.to_owned();
    let (mut table, _) = blocking(move || known_devices::of_project(&root)).await?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    let has_gpu = agent.facts().is_some_and(|facts| facts.cuda);
    let ran_on = measured.map(|measured| &measured.profile.device);
    let on_gpu = ran_on.is_some_and(|device| device.kind != "cpu");
    if let Some(wanted) = wanted.filter(|_| !has_gpu && !on_gpu) {
        let device = table.choose(wanted).map_err(|error| unavailable(error.to_string()))?.clone();
        let name = Some(device.name.clone());
        return Ok(Target { claim: Claim::Cuda, device, name, measured: None });
    }
    let gpu = match ran_on {
        Some(device) if on_gpu => Some((device.name.clone(), device.is_simulated)),
        None if has_gpu => {
            let gpu = devices::query().await.gpus.into_iter().next();
            gpu.map(|gpu| (gpu.name, gpu.is_simulated))
        }
        _ => None,
    };
    let Some((name, is_simulated)) = gpu else {
        let device = cpu(measured.map(|measured| &*measured.profile), cores);
        return Ok(Target { claim: Claim::Cpu, device, name: None, measured: measured.cloned() });
    };
    let table = blocking(move || {
        measured_rates::add_to(&mut table, is_simulated);
        table
    });
    let device = table.await?.find(&name).cloned().ok_or_else(|| {
        unavailable(format!("{name} is not in the GPU table, so its speed is unknown"))
    })?;
    Ok(Target { claim: Claim::Cuda, device, name: None, measured: measured.cloned() })
}

fn unavailable(what: String) -> Outcome {
    Outcome::Problem(Problem::new(ProblemKind::Run, what, ""))
}

/// Returns the line of the last operator that ran.
fn last_line(list: &OpList) -> Option<FailureFrame> {
    let frame = list.frames(list.ops.last()?.stack).next()?;
    let path = list.files.get(frame.file as usize)?.clone();
    Some(FailureFrame { path, line: frame.line, name: frame.function.clone() })
}

/// Reads the list of an estimate, or returns the reason that there is none.
pub(super) fn read_list(root: &Path, folder: &Path, ended: &RunOutcome) -> Result<OpList, Outcome> {
    let detail = || ended.message.clone().unwrap_or_else(|| "the agent gave no reason".to_owned());
    match ended.outcome {
        AgentOutcome::Cancelled => return Err(Outcome::Cancelled),
        AgentOutcome::Complete | AgentOutcome::Failed | AgentOutcome::Short => {}
        AgentOutcome::Memory => {
            return Err(unavailable(format!("it needed too much memory: {}", detail())));
        }
        _ => return Err(unavailable(detail())),
    }
    let bytes = recording::read_bounded(folder, LIST, LIST_BYTES_LIMIT)
        .map_err(|error| unavailable(format!("{error} ({})", detail())))?;
    let list = OpList::parse(&bytes).map_err(|error| unavailable(error.to_string()))?;
    let failure = list.failure.clone().and_then(|value| serde_json::from_value(value).ok());
    if let Some(failure) = failure.filter(|_| ended.outcome == AgentOutcome::Failed) {
        let failure = run_failure(&list, failure);
        let (root, log) = (root.to_owned(), None);
        return Err(Outcome::Failed(Box::new(super::ProgramFailure {
            failure,
            root,
            log,
            side_effects: None,
        })));
    }
    match ended.outcome {
        AgentOutcome::Failed => Err(unavailable(detail())),
        _ => Ok(list),
    }
}

const LIST_BYTES_LIMIT: u64 = ridgeline_analysis::operators::op_list::MAX_BYTES as u64;

fn run_failure(list: &OpList, failure: Failure) -> RunFailure {
    let frames = failure.frames.iter().filter_map(|frame| {
        let path = list.files.get(frame.file as usize)?.clone();
        Some(FailureFrame { path, line: frame.line, name: frame.name.clone() })
    });
    RunFailure {
        frames: frames.collect(),
        error_type: failure.type_name,
        message: failure.message,
        kind: failure.kind,
        requested_bytes: failure.requested_bytes,
        memory: None,
        run: Box::new(RunFacts { error: failure.facts, ..RunFacts::default() }),
    }
}

/// Returns whether the files of a measurement are unchanged on disk.
fn is_on_disk(measured: &Profiled) -> bool {
    let files = measured.profile.files.iter().zip(&measured.files);
    files.filter(|(facts, _)| !facts.fingerprint.is_empty()).all(|(facts, path)| {
        let text = path.as_deref().and_then(text_on_disk);
        text.is_some_and(|text| fingerprint(&text) == facts.fingerprint)
    })
}

impl SavedList {
    /// Returns whether the list is of the text that was measured.
    fn is_of(&self, profile: &Profile) -> bool {
        profile
            .files
            .iter()
            .filter(|facts| !facts.fingerprint.is_empty())
            .all(|facts| self.files.get(&facts.path).is_none_or(|text| *text == facts.fingerprint))
    }
}
