//! The program at other batch sizes: estimates and short runs of a text with another number in it.
//! No file of the project is touched, and nothing is kept of what ran.

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

/// What a run may take where nobody asked for it: its iterations, at the speed of the last one.
const SHORT: Duration = Duration::from_secs(4);
/// All of it where somebody asked. Where nobody did, the background budget is the limit.
const ASKED_LIMIT: Duration = Duration::from_secs(600);
/// One run or estimate, in seconds. The configuration may say less.
const QUESTION_SECONDS: u64 = 60;
/// Iterations that are timed: the quickest of them counts, so that more are better, for so long.
const TIMED: std::ops::RangeInclusive<u32> = 5..=60;
const TIMED_FOR: Duration = Duration::from_secs(2);
/// A list of operators larger than this is none that the agent wrote, in bytes.
const MOST_LIST_BYTES: u64 = 256 << 20;

/// What is asked, and of what.
struct Explorer<'a> {
    pipeline: &'a Pipeline,
    agent: Arc<Agent>,
    plan: Plan,
    profile: Arc<Profile>,
    /// The number's file, and the text with a gap where the number is; a provider has none.
    gap: Option<Gap>,
    /// The batch at which the measurement was made, and its samples.
    base: (u64, u64),
    /// The batches that the measured run took.
    batches: Option<PathBuf>,
    permit: &'a Permit,
}

struct Gap {
    file: String,
    before: String,
    after: String,
}

impl Pipeline {
    /// What is known of other batch sizes before one is tried. It runs nothing.
    pub(crate) async fn look_at_batch(&self, request: &ExploreRequest) -> Option<Exploration> {
        self.first_look(request).await.map(|(exploration, _, _)| exploration)
    }

    /// Whether something else needs the machine, or the GPU of this name.
    pub(crate) async fn machine_needed(&self, gpu: Option<&str>) -> Option<Needed> {
        if self.is_busy_machine_fine() { None } else { machine_load::needed(gpu).await }
    }

    async fn first_look(&self, request: &ExploreRequest) -> Option<(Exploration, Sources, Plan)> {
        let own = super::server::own_request(request.profile.clone()).ok()?;
        let plan = self.plan(own).await.ok()?;
        // Several projects of one workspace: only that which was measured can be compared with.
        if plan.root != request.measured.root {
            return None;
        }
        let profile = request.measured.profile.clone();
        let taken = if profile.device.kind == "cpu" { 0 } else { in_use(&profile).await };
        let looked = first_look(plan.clone(), profile, request.memory_limit, taken);
        let (exploration, sources) = blocking(looked).await.ok()?;
        Some((exploration, sources, plan))
    }

    /// Finds out what other batch sizes cost, and tells each time that more is known. Ends soon after its
    /// permit.
    pub(crate) async fn explore_batch(
        &self,
        request: ExploreRequest,
        news: mpsc::Sender<Exploration>,
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
        if news.send(exploration.clone()).await.is_err() {
            return Explored::Done;
        }
        // A provider is asked for its batch size, wherever that is written.
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
            // A receiver that is gone wants nothing more.
            let _ = news.send(exploration).await;
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
                Effort::ShortRuns => expected < SHORT.as_nanos() as f64,
                Effort::Runs => true,
            },
            side_by_side: side_by_side::can(&explorer.agent, &request.measured).await,
        };
        let gpu = (profile.device.kind == "cuda").then_some(profile.device.name.as_str());
        // Whoever starts this has looked at the machine, and ends what nobody asked for in time.
        let (mut is_first, until) = (true, Instant::now() + ASKED_LIMIT);
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
            // News that nobody takes in time are old news.
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
            if news.send(exploration.clone()).await.is_err() {
                return Explored::Done;
            }
        }
        Explored::Done
    }
}

/// What is being tried, in a person's words, and how many runs are to come.
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
    taken: u64,
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
        let capacity = capacity(&plan, &profile, memory_limit, taken);
        let evidence = Evidence { runs, ..Evidence::default() };
        let exploration = Exploration { root, entry, site, evidence, capacity, message: None };
        (exploration, sources)
    }
}

/// The program as the search for its batch size needs it.
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

/// What an iteration may hold: the limit that the person set, or what the device has that nobody else
/// uses.
fn capacity(plan: &Plan, profile: &Profile, limit: Option<u64>, taken: u64) -> Option<Capacity> {
    let device = profile.memory.capacity_bytes;
    if profile.device.kind == "cpu" {
        // The supervisor stops a run beyond the configuration's limit.
        let most = plan.run_request(PathBuf::new()).limits.memory_bytes;
        let bytes = [device, Some(most), limit].into_iter().flatten().min()?;
        return Some(Capacity { bytes, taken: 0 });
    }
    let left = device.map(|device| device.saturating_sub(taken));
    match (left, limit) {
        // The limit is on the iteration, whatever others use.
        (Some(left), Some(limit)) if limit < left => Some(Capacity { bytes: limit, taken: 0 }),
        (None, Some(limit)) => Some(Capacity { bytes: limit, taken: 0 }),
        _ => Some(Capacity { bytes: device?, taken }),
    }
}

/// Bytes of the GPU that are in use now. A driver that hangs is not waited for.
async fn in_use(profile: &Profile) -> u64 {
    let devices = devices::query_within(Duration::from_secs(2)).await;
    let mut found = devices.gpus.into_iter().filter(|gpu| gpu.name == profile.device.name);
    found.find_map(|gpu| gpu.used_bytes).unwrap_or_default()
}

/// The text around the number.
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

/// What a person should know: what could not be tried, and why.
fn message(evidence: &Evidence, bounds: &Bounds) -> Option<String> {
    // What did not run side by side ran one after another, or said why it could not.
    let is_told = |failed: &&Failed| !matches!(failed.question, Question::SideBySide { .. });
    let failed = evidence.failed.iter().rev().find(is_told)?;
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
    /// `before` is how often batches ran side by side before.
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
        // A recording has many megabytes, and removing it takes its time.
        let _ = blocking(move || drop(folder)).await;
        answer
    }

    fn iterations(&self) -> Iterations {
        let planned = self.plan.run_request(PathBuf::new()).iterations;
        let room = TIMED_FOR.as_nanos() as f64 / self.profile.iteration.time_ns.max(1.0);
        let timed = (room as u32).clamp(*TIMED.start(), *TIMED.end());
        Iterations { timed: planned.timed.max(timed), timed_at_most: None, ..planned }
    }

    /// The request for a batch: a provider is asked for it, a script finds it in its text.
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
        self.follows(batch, Some(run.samples))?;
        Ok(run)
    }

    /// The current batch and others in turns.
    async fn side_by_side(
        &self,
        others: impl Iterator<Item = u64>,
        before: usize,
        out: &Path,
    ) -> Result<Answer, String> {
        let batches: Vec<u64> = std::iter::once(self.base.0).chain(others).collect();
        let request = self.request(self.base.0, out);
        let versions: Vec<side_by_side::Different> = batches
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
        // Nobody is told of it: the status says that batch sizes are being tried.
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
            self.follows(*batch, Some(run.samples))?;
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
        // Nobody is told of it: the status says that batch sizes are being tried.
        let (progress, _unread) = mpsc::channel::<ProgressEvent>(1);
        self.pipeline.run_once(&self.agent, request, &progress, self.permit.token()).await
    }

    async fn estimate(&self, batch: u64, out: &Path) -> Result<Estimate, String> {
        let is_cpu = self.profile.device.kind == "cpu";
        let run = RunRequest { device: "cpu".to_owned(), ..self.request(batch, out) };
        let claim = if is_cpu { Claim::Cpu } else { Claim::Cuda };
        // What a run took from its loaders was of its own batch.
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
        self.follows(batch, list.batch.as_ref().and_then(|batch| batch.size))?;
        let peak_bytes = list.memory.as_ref().map(|memory| memory.peak_bytes);
        let peak_bytes = peak_bytes.ok_or_else(|| "its memory usage is unknown".to_owned())?;
        let device = DeviceTable::shipped().find(&self.profile.device.name);
        let cost_ns = device.filter(|_| !is_cpu).map(|device| {
            let operators = list.ops.iter().filter_map(|op| list.operator(op));
            operators.map(|one| cost(one, device, &Options::default()).time_ns.value).sum()
        });
        Ok(Estimate { batch, peak_bytes, cost_ns })
    }

    /// Whether the number that was replaced is the batch that ran.
    fn follows(&self, batch: u64, samples: Option<u64>) -> Result<(), String> {
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

/// Why a question came to nothing, in a few words.
async fn why(ended: &RunOutcome, out: &Path) -> String {
    let out = out.to_owned();
    let failure = blocking(move || recording::failure(&out)).await.ok().flatten();
    if let Some(failure) = failure {
        let first = failure.message.lines().next().unwrap_or_default().to_owned();
        return format!("{}: {first}", failure.error_type);
    }
    let message = ended.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let words = match ended.outcome {
        Ended::Short => "too few iterations at this batch size",
        Ended::Memory => "it exceeded the memory limit",
        Ended::Timeout => "it took longer than a minute",
        Ended::Crashed => "it crashed",
        _ => "it exited early",
    };
    message.map_or(words.to_owned(), |message| format!("{words}: {message}"))
}

fn read_list(file: &Path) -> Result<OpList, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > MOST_LIST_BYTES {
        return Err("its operator list is too large".to_owned());
    }
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    OpList::parse(&bytes).map_err(|error| error.to_string())
}
