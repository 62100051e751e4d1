//! Explores other batch sizes with estimates and short runs, which replace the number in the text.
//! No file of the project is touched, and nothing of the runs is stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::operators::op_cost::{Options, cost};
use ridgeline_analysis::operators::op_list::{OpList, Outcome as ListOutcome};
use ridgeline_analysis::predict::batch_size::{
    Bounds, Capacity, Estimate, Evidence, Failed, Question, Round, Run, most_runs_left,
    next_question,
};
use ridgeline_analysis::profile::Profile;
use ridgeline_analysis::python::batch_site::{
    BatchSite, Entry as SiteEntry, Project as _, batch_site,
};
use ridgeline_analysis::python::semantics::Refusal;
use ridgeline_gpu::agent::{
    Agent, Claim, Entry, EstimateRequest, Iterations, Outcome as Ended, RunOutcome, RunRequest,
};
use ridgeline_gpu::devices;
use tokio::sync::mpsc;

use super::plan::Plan;
use super::side_by_side::{self, SideBySide};
use super::{Pipeline, blocking, fewer_iterations, or_cancelled, read_in_background, recording};
use crate::batch::{Effort, Exploration, ExploreRequest, Explored, Sources};
use crate::consent::Permit;
use crate::machine_load::{self, Needed};
use crate::profiler::ProgressEvent;

/// The maximum expected time of a background run: its iterations, at the speed of the last run.
const BACKGROUND_RUN_LIMIT: Duration = Duration::from_secs(4);
/// The time limit of an exploration that the user requested. In the background, the budget is the
/// limit.
const REQUESTED_LIMIT: Duration = Duration::from_secs(600);
/// The time limit of one run or estimate, in seconds. The configuration may set a lower one.
const QUESTION_SECONDS: u64 = 60;
/// The number of iterations to time. The fastest one counts, so more are better, up to the time
/// below.
const TIMED: std::ops::RangeInclusive<u32> = 5..=60;
const TIMED_FOR: Duration = Duration::from_secs(2);
/// The maximum size of an operator list in bytes. The agent never writes a larger one.
const LIST_BYTES_LIMIT: u64 = 256 << 20;

/// Answers questions about other batch sizes of a program.
struct Explorer<'a> {
    pipeline: &'a Pipeline,
    agent: Arc<Agent>,
    plan: Plan,
    profile: Arc<Profile>,
    /// The text around the number. A provider has none.
    gap: Option<Gap>,
    /// The batch size of the measurement, and its number of samples.
    base: (u64, u64),
    /// The batches that the measured run used.
    batches: Option<PathBuf>,
    permit: &'a Permit,
}

struct Gap {
    file: String,
    before: String,
    after: String,
}

impl Pipeline {
    /// Returns what is known about other batch sizes before any is tried. It runs nothing.
    pub(crate) async fn look_at_batch(&self, request: &ExploreRequest) -> Option<Exploration> {
        self.first_look(request).await.map(|(exploration, _, _)| exploration)
    }

    /// Whether something else needs the machine, or the GPU of this name.
    pub(crate) async fn machine_needed(&self, gpu: Option<&str>) -> Option<Needed> {
        if self.ignores_machine_load() { None } else { machine_load::needed(gpu).await }
    }

    async fn first_look(&self, request: &ExploreRequest) -> Option<(Exploration, Sources, Plan)> {
        let to_plan = super::server::plan_request(request.profile.clone()).ok()?;
        let plan = self.plan(to_plan).await.ok()?;
        // If the workspace has several projects, only the measured one can be compared.
        if plan.root != request.measured.root {
            return None;
        }
        let profile = request.measured.profile.clone();
        let in_use_bytes = if profile.device.kind == "cpu" { 0 } else { in_use(&profile).await };
        let look = first_look(plan.clone(), profile, request.memory_limit, in_use_bytes);
        let (exploration, sources) = blocking(look).await.ok()?;
        Some((exploration, sources, plan))
    }

    /// Determines the cost of other batch sizes, and sends each new result. Ends soon after its
    /// permit.
    pub(crate) async fn explore_batch(
        &self,
        request: ExploreRequest,
        results: mpsc::Sender<Exploration>,
        progress: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> Explored {
        let Some((mut exploration, sources, plan)) = self.first_look(&request).await else {
            return Explored::Done;
        };
        let profile = request.measured.profile.clone();
        if let Some(known) = &request.known {
            exploration.evidence.clone_from(&known.evidence);
        }
        let run = exploration.evidence.runs.first();
        let base = run.map(|run| (run.batch, run.samples));
        if results.send(exploration.clone()).await.is_err() {
            return Explored::Done;
        }
        // A provider gets its batch size as an argument, wherever that is written.
        let is_provider = matches!(plan.entry, Entry::Provider { .. });
        let site = exploration.site.clone().ok();
        let (Some(base), true) = (base, is_provider || site.is_some()) else {
            return Explored::Done;
        };
        let gap = site.filter(|_| !is_provider).and_then(|site| gap(&site, &sources));
        let is_background = request.effort != Effort::Runs;
        let agent = async {
            let interpreter = self.interpreter(&plan).await?;
            self.agent(&plan, &interpreter).await
        };
        let agent = or_cancelled(permit.token(), agent).await;
        if !permit.is_valid() {
            return Explored::Done;
        }
        let Ok(agent) = agent else {
            exploration.message =
                Some("No Python with torch was found to run other batch sizes.".to_owned());
            // If the receiver is gone, nobody needs it.
            let _ = results.send(exploration).await;
            return Explored::Done;
        };
        let recording = request.measured.recording.as_deref();
        let batches = recording.map(|folder| folder.join("batch.json"));
        let explorer = Explorer {
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
            capacity: exploration.capacity,
            estimates: true,
            runs: match request.effort {
                Effort::Estimates => false,
                Effort::ShortRuns => expected < BACKGROUND_RUN_LIMIT.as_nanos() as f64,
                Effort::Runs => true,
            },
            side_by_side: side_by_side::can(&explorer.agent, &request.measured).await,
        };
        let gpu = (profile.device.kind == "cuda").then_some(profile.device.name.as_str());
        // The caller has checked the machine before the first question, and limits background work.
        let (mut is_first, until) = (true, Instant::now() + REQUESTED_LIMIT);
        while let Some(question) = next_question(&exploration.evidence, base.0, &bounds) {
            if !permit.is_valid() || Instant::now() > until {
                return Explored::Done;
            }
            if is_background && !is_first && self.machine_needed(gpu).await.is_some() {
                return Explored::MachineNeeded;
            }
            is_first = false;
            let left = most_runs_left(&exploration.evidence, base.0, &bounds);
            permit.say(stage(question, left));
            // Progress that is not received in time is dropped.
            let _ = progress.try_send(ProgressEvent { stage: stage(question, left), share: None });
            let before = exploration.evidence.in_turns.len();
            match explorer.answer(question, before).await {
                Ok(Answer::Run(run)) => exploration.evidence.runs.push(run),
                Ok(Answer::SideBySide(runs, rounds)) => {
                    exploration.evidence.runs.extend(runs);
                    exploration.evidence.in_turns.push(rounds);
                }
                Ok(Answer::Estimate(estimate)) => exploration.evidence.estimates.push(estimate),
                Err(reason) => exploration.evidence.failed.push(Failed { question, reason }),
            }
            if !permit.is_valid() {
                return Explored::Done;
            }
            exploration.message = message(&exploration.evidence, &bounds);
            if results.send(exploration.clone()).await.is_err() {
                return Explored::Done;
            }
        }
        Explored::Done
    }
}

/// What is being tried, as shown to the user, and the number of runs left.
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

/// What is known before anything runs.
fn first_look(
    plan: Plan,
    profile: Arc<Profile>,
    memory_limit: Option<u64>,
    in_use_bytes: u64,
) -> impl FnOnce() -> (Exploration, Sources) {
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
        let exploration = Exploration { root, entry, site, evidence, capacity, message: None };
        (exploration, sources)
    }
}

/// The program as input for the search for its batch size.
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

/// The memory that an iteration may use: the limit that the user set, or the device's memory that
/// is not in use.
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

/// The GPU memory in use now, in bytes. The query has a timeout, because a driver may hang.
async fn in_use(profile: &Profile) -> u64 {
    let devices = devices::query_within(Duration::from_secs(2)).await;
    let mut found = devices.gpus.into_iter().filter(|gpu| gpu.name == profile.device.name);
    found.find_map(|gpu| gpu.used_bytes).unwrap_or_default()
}

/// The text before and after the number.
fn gap(site: &BatchSite, sources: &Sources) -> Option<Gap> {
    let text = sources.text(&site.file)?;
    Some(Gap {
        file: site.file.clone(),
        before: text.get(..site.span.start)?.to_owned(),
        after: text.get(site.span.end..)?.to_owned(),
    })
}

fn run_of(profile: &Profile, batch: u64) -> Option<Run> {
    Some(Run {
        batch,
        samples: profile.iteration.batch_size?,
        timed_ns: profile.iteration.timed_ns.clone(),
        peak_bytes: Some(profile.memory.peak_bytes).filter(|bytes| *bytes > 0),
        at_peak: profile.memory.at_peak,
    })
}

/// A message for the user about a batch size that could not be tried.
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

enum Answer {
    Run(Run),
    SideBySide(Vec<Run>, Vec<Round>),
    Estimate(Estimate),
}

impl Explorer<'_> {
    /// `before` is the number of side-by-side runs so far.
    async fn answer(&self, question: Question, before: usize) -> Result<Answer, String> {
        let store = self.pipeline.store().clone();
        let folder = blocking(move || store.new_batch_folder())
            .await
            .map_err(|_| "it was interrupted".to_owned())?;
        let folder = folder.map_err(|error| error.to_string())?;
        let answer = match question {
            Question::Run(batch) => self.run(batch, folder.path()).await.map(Answer::Run),
            Question::SideBySide { smaller, larger } => {
                let others = smaller.into_iter().chain(larger);
                self.side_by_side(others, before, folder.path()).await
            }
            Question::Estimate(batch) => {
                self.estimate(batch, folder.path()).await.map(Answer::Estimate)
            }
        };
        // A recording has many megabytes, so removing it takes time.
        let _ = blocking(move || drop(folder)).await;
        answer
    }

    fn iterations(&self) -> Iterations {
        let planned = self.plan.run_request(PathBuf::new()).iterations;
        let room = TIMED_FOR.as_nanos() as f64 / self.profile.iteration.time_ns.max(1.0);
        let timed = (room as u32).clamp(*TIMED.start(), *TIMED.end());
        Iterations { timed: planned.timed.max(timed), timed_at_most: None, ..planned }
    }

    /// The request for a batch size: a provider gets it as an argument, a script in an overlay.
    fn request(&self, batch: u64, out: &Path) -> RunRequest {
        let mut request = self.plan.run_request(out.to_owned());
        match &self.gap {
            None => request.batch_size = Some(batch),
            Some(gap) => {
                let text = format!("{}{batch}{}", gap.before, gap.after);
                request.overlay = BTreeMap::from([(gap.file.clone(), text)]);
            }
        }
        request.iterations = self.iterations();
        request.limits.seconds = request.limits.seconds.min(QUESTION_SECONDS);
        request
    }

    async fn run(&self, batch: u64, out: &Path) -> Result<Run, String> {
        let mut request = self.request(batch, out);
        let mut ended = self.run_once(&request).await;
        if ended.outcome == Ended::Short
            && let Some(fewer) = fewer_iterations(out, &request.iterations).await
        {
            request.iterations = fewer;
            ended = self.run_once(&request).await;
        }
        if ended.outcome != Ended::Complete {
            return Err(why(&ended, out).await);
        }
        let read = read_in_background(out, None, &self.plan.root).await;
        let read = read.map_err(|_| "its recording cannot be read".to_owned())?;
        let run = run_of(&read.profile, batch);
        let run = run.ok_or_else(|| "it did not report its batch size".to_owned())?;
        self.check_batch_size(batch, Some(run.samples))?;
        Ok(run)
    }

    /// Runs the current batch size and others in turns.
    async fn side_by_side(
        &self,
        others: impl Iterator<Item = u64>,
        before: usize,
        out: &Path,
    ) -> Result<Answer, String> {
        let batches: Vec<u64> = std::iter::once(self.base.0).chain(others).collect();
        let request = self.request(self.base.0, out);
        let versions: Vec<side_by_side::VersionChanges> = batches
            .iter()
            .map(|batch| {
                let request = self.request(*batch, out);
                (request.overlay, request.batch_size)
            })
            .collect();
        let run = SideBySide {
            agent: &self.agent,
            request,
            iteration_ns: self.profile.iteration.time_ns,
            timed_for: TIMED_FOR,
            more_turns: u32::try_from(before).unwrap_or(0),
        };
        // Not displayed: the status says that batch sizes are being tried.
        let (progress, _unread) = mpsc::channel::<ProgressEvent>(1);
        let measured =
            self.pipeline.side_by_side(run, &versions, &progress, self.permit.token()).await;
        let measured = match measured {
            Ok(measured) => measured,
            Err(ended) => return Err(why(&ended, out).await),
        };
        let mut runs = Vec::with_capacity(batches.len());
        for (batch, one) in batches.iter().zip(&measured) {
            let run = run_of(&one.profile, *batch);
            let run = run.ok_or_else(|| "it did not report its batch size".to_owned())?;
            self.check_batch_size(*batch, Some(run.samples))?;
            runs.push(run);
        }
        let rounds = measured.iter().map(|one| one.turns.len()).min().unwrap_or_default();
        // Every version had at least `rounds` turns.
        let round = |number: usize| -> Option<Round> {
            let turns = measured.iter().map(|one| one.turns.get(number).copied());
            batches.iter().zip(turns).map(|(batch, turn)| Some((*batch, turn?))).collect()
        };
        Ok(Answer::SideBySide(runs, (0..rounds).map_while(round).collect()))
    }

    async fn run_once(&self, request: &RunRequest) -> RunOutcome {
        // Not displayed: the status says that batch sizes are being tried.
        let (progress, _unread) = mpsc::channel::<ProgressEvent>(1);
        self.pipeline.run_once(&self.agent, request, &progress, self.permit.token()).await
    }

    async fn estimate(&self, batch: u64, out: &Path) -> Result<Estimate, String> {
        let is_cpu = self.profile.device.kind == "cpu";
        let run = RunRequest { device: "cpu".to_owned(), ..self.request(batch, out) };
        let claim = if is_cpu { Claim::Cpu } else { Claim::Cuda };
        // The recorded batches have the measured batch size.
        let batches = self.batches.clone().filter(|_| batch == self.base.0);
        let request = EstimateRequest { run, claim, batches, low_priority: true };
        let (events, _unread) = mpsc::channel(1);
        let ended = self.agent.estimate(request, events, self.permit.token().clone()).await;
        if ended.outcome != Ended::Complete {
            return Err(why(&ended, out).await);
        }
        let file = out.join("ops.json");
        let read = blocking(move || read_list(&file)).await;
        let list = read.map_err(|_| "its operators cannot be read".to_owned())??;
        if list.outcome != ListOutcome::Complete {
            let first = list.unsupported.first().map(|one| one.message.clone());
            return Err(first.unwrap_or_else(|| "it exited early".to_owned()));
        }
        self.check_batch_size(batch, list.batch.as_ref().and_then(|batch| batch.size))?;
        let peak_bytes = list.memory.as_ref().map(|memory| memory.peak_bytes);
        let peak_bytes = peak_bytes.ok_or_else(|| "its memory usage is unknown".to_owned())?;
        let device = DeviceTable::shipped().find(&self.profile.device.name);
        let cost_ns = device.filter(|_| !is_cpu).map(|device| {
            let operators = list.ops.iter().filter_map(|op| list.operator(op));
            operators.map(|one| cost(one, device, &Options::default()).time_ns.value).sum()
        });
        Ok(Estimate { batch, peak_bytes, cost_ns })
    }

    /// Checks that changing the number has changed the batch size.
    fn check_batch_size(&self, batch: u64, samples: Option<u64>) -> Result<(), String> {
        let (base, base_samples) = self.base;
        let Some(samples) = samples else {
            return Err("it did not report its batch size".to_owned());
        };
        let expected = u128::from(base_samples) * u128::from(batch);
        if u128::from(samples) * u128::from(base) == expected {
            return Ok(());
        }
        Err(format!("the batch size did not change: an iteration had {samples} samples"))
    }
}

/// Why a question has no answer, in a few words.
async fn why(ended: &RunOutcome, out: &Path) -> String {
    let out = out.to_owned();
    let failure = blocking(move || recording::failure(&out)).await.ok().flatten();
    if let Some(failure) = failure {
        let first = failure.message.lines().next().unwrap_or_default().to_owned();
        return format!("{}: {first}", failure.error_type);
    }
    let message = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let reason = match ended.outcome {
        Ended::Short => "too few iterations at this batch size",
        Ended::Memory => "it exceeded the memory limit",
        Ended::Timeout => "it took longer than a minute",
        Ended::Crashed => "it crashed",
        _ => "it exited early",
    };
    message.map_or(reason.to_owned(), |message| format!("{reason}: {message}"))
}

fn read_list(file: &Path) -> Result<OpList, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > LIST_BYTES_LIMIT {
        return Err("its operator list is too large".to_owned());
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    OpList::parse(&bytes).map_err(|error| error.to_string())
}
