//! From a request to a profile: chooses the script and the Python, starts the agent, runs the
//! program, and attributes its recording.

mod batch_size;
mod elsewhere;
mod estimate;
mod few_iterations;
mod gpu_rates;
mod measure;
mod outcome;
mod plan;
mod probe_cache;
mod probes;
mod ranks;
mod recording;
mod reuse;
mod run_facts;
mod server;
mod side_by_side;
mod step;
mod unsaved;
mod what_if;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use ridgeline_gpu::agent::{
    Agent, AgentError, AgentOptions, Iterations, Outcome as Ended, Patience, Prepare, RunEvent,
    RunOutcome, RunRequest, Stage,
};
use ridgeline_gpu::interpreter::{self, Candidate, Consent, Interpreter, Surroundings};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use few_iterations::fewer_iterations;
pub(crate) use measure::Compared;
pub(crate) use outcome::{Outcome, Problem, ProblemKind, ProgramFailure};
pub(crate) use plan::{Overrides, Plan, Request, TypedCommand, configured_python, plan};
pub(crate) use probes::{kept_probes, known_probes};
use recording::{Read, read};
pub(crate) use recording::{add_ranks, is_recording, load};
pub(crate) use what_if::{Iteration, subject};

use crate::discover::Discovery;
use crate::history;
use crate::profiler::{Profiled, ProgressEvent};
use crate::store::{Store, StoreError, discard_data, make_recording_private};

/// The number of agents kept warm. Each holds a few hundred megabytes of imported torch.
const WARM_AGENTS: usize = 2;
/// Warm agents other than the last one used end after this time without use.
const IDLE: Duration = Duration::from_secs(120);

/// Profiles projects. Keeps what makes the next run faster: warm agents, interpreters that were
/// already queried, and what discovery has learned about files.
pub(crate) struct Pipeline {
    store: Store,
    surroundings: Surroundings,
    discovery: Arc<std::sync::Mutex<Discovery>>,
    interpreters: Mutex<Vec<(Vec<Candidate>, Interpreter)>>,
    /// The one used last is at the end.
    agents: Arc<Mutex<Vec<Warm>>>,
    saved_lists: Mutex<Vec<estimate::Saved>>,
    ending_idle: std::sync::Mutex<Option<JoinHandle<()>>>,
}

/// A running agent that is ready for a project.
#[derive(Clone)]
struct Warm {
    root: PathBuf,
    interpreter: PathBuf,
    /// The environment variables of the configuration. Libraries read theirs when they are loaded,
    /// so an agent started with other variables cannot be used.
    env: BTreeMap<String, String>,
    agent: Arc<Agent>,
    prepared: Option<Prepare>,
    /// Whether it has run the program.
    has_run: bool,
    used: Instant,
}

impl Pipeline {
    /// Creates a pipeline that stores its data in `store`.
    pub(crate) fn new(store: Store) -> Pipeline {
        let surroundings =
            Surroundings { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
        Pipeline {
            store,
            surroundings,
            discovery: Arc::default(),
            interpreters: Mutex::default(),
            agents: Arc::default(),
            saved_lists: Mutex::default(),
            ending_idle: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Decides what to run. It only reads files.
    ///
    /// # Errors
    /// An outcome without a measurement, see [`plan`].
    pub(crate) async fn plan(&self, request: Request) -> Result<Plan, Outcome> {
        let store = self.store.clone();
        let discovery = Arc::clone(&self.discovery);
        blocking(move || {
            let mut discovery = discovery.lock().unwrap_or_else(PoisonError::into_inner);
            plan(&request, &store, &mut discovery)
        })
        .await?
    }

    /// Finds the Python to run a plan in, with a usable torch.
    ///
    /// # Errors
    /// [`ProblemKind::NoPython`], with a remedy.
    pub(crate) async fn interpreter(&self, plan: &Plan) -> Result<Interpreter, Outcome> {
        // Querying a Python imports torch, which takes seconds. The list of candidates is
        // determined every time, so that new and removed environments are noticed.
        let candidates = interpreter::candidates(&plan.search, &self.surroundings);
        let mut known = self.interpreters.lock().await;
        if let Some((_, found)) = known.iter().find(|(known, _)| *known == candidates) {
            return Ok(found.clone());
        }
        let found = interpreter::find(&plan.search, &self.surroundings, Consent::Given)
            .await
            .and_then(|found| found.usable().map(|_| found.clone()))
            .map_err(|error| {
                Outcome::Problem(Problem::new(ProblemKind::NoPython, error.to_string(), ""))
            })?;
        const KNOWN_LIMIT: usize = 16;
        if known.len() >= KNOWN_LIMIT {
            known.remove(0);
        }
        known.push((candidates, found.clone()));
        Ok(found)
    }

    /// Starts the agent for a plan, so that its run starts faster.
    ///
    /// # Errors
    /// If there is no Python with torch, or the agent does not start in it.
    pub(crate) async fn warm(&self, plan: &Plan) -> Result<(), Outcome> {
        let interpreter = self.interpreter(plan).await?;
        if plan.launched_by.is_some() {
            // An agent for launched runs cannot be prepared.
            return Ok(());
        }
        self.agent(plan, &interpreter).await.map(|_| ())
    }

    /// Ends the warm agents of all projects in a folder.
    pub(crate) async fn forget(&self, folder: &Path) {
        self.agents.lock().await.retain(|warm| !warm.root.starts_with(folder));
    }

    /// Runs a plan and measures its cost. Progress events are dropped if `progress` is full. Ends
    /// soon after `cancel`, and leaves no process behind.
    pub(crate) async fn run(
        &self,
        plan: &Plan,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Outcome {
        let work = self.run_to_end(plan, progress, cancel);
        match work.await {
            Ok(profiled) => Outcome::Measured(Box::new(profiled)),
            Err(outcome) => outcome,
        }
    }

    async fn run_to_end(
        &self,
        plan: &Plan,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<Profiled, Outcome> {
        send_progress(progress, "looking for a Python with torch", 0.0);
        let interpreter = or_cancelled(cancel, self.interpreter(plan)).await?;
        send_progress(progress, "starting Python", 0.02);
        let agent = or_cancelled(cancel, self.agent_of(plan, &interpreter)).await?;
        let store = self.store.clone();
        let root = plan.root.clone();
        let folder = blocking(move || store.new_recording(&root)).await?.map_err(files_problem)?;

        let started = SystemTime::now();
        let mut request = plan.launched_request(folder.clone());
        let (mut ended, run_notes) =
            self.run_until_enough(&agent, &mut request, progress, cancel).await;
        let mut notes = plan.notes.clone();
        notes.extend(run_notes);
        if ended.outcome != Ended::Complete {
            let outcome =
                outcome::without_measurement(plan, &request, &ended, &interpreter, folder.clone())
                    .await;
            blocking(move || discard_data(&folder)).await?;
            return Err(outcome);
        }

        send_progress(progress, "reading the recording", 0.95);
        let side_effects = ended.side_effects.take().map(Arc::new);
        let mut read = read_in_background(&folder, None, &plan.root).await?;
        if read.compiled_regions > 0 {
            send_progress(
                progress,
                "running again without torch.compile to split costs over lines",
                0.6,
            );
            let eager = folder.join("eager");
            match self.eager_pass(&agent, &request, &eager, progress, cancel).await {
                Ok(()) => read = read_in_background(&folder, Some(eager), &plan.root).await?,
                Err(Outcome::Cancelled) => return Err(Outcome::Cancelled),
                Err(_) => notes.push(
                    "the run without torch.compile did not finish, so compiled regions are not \
                    split over their lines"
                        .to_owned(),
                ),
            }
        }
        // A reused recording would lack these notes.
        if notes == plan.notes {
            let (folder, key) = (folder.clone(), self.key_of(plan));
            blocking(move || reuse::note(&folder, &key, started)).await?;
        }
        read.profile.notes.splice(0..0, notes);
        read.profile.side_effects = side_effects;
        let mut profiled = recording::locate(read, &plan.root, Some(&interpreter), &folder);
        let store = self.store.clone();
        blocking(move || {
            if let Err(error) = history::add(&store, &profiled) {
                let note = format!("this run was not added to the project's history: {error}");
                Arc::make_mut(&mut profiled.profile).notes.push(note);
            }
            history::with_changes(&store, profiled)
        })
        .await
    }

    /// Runs again with `torch.compile` off, and records into a subfolder of the recording.
    async fn eager_pass(
        &self,
        agent: &Agent,
        request: &RunRequest,
        folder: &Path,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> Result<(), Outcome> {
        let out = folder.to_owned();
        blocking(move || crate::store::create_private(&out)).await?.map_err(files_problem)?;
        let request =
            RunRequest { out: folder.to_owned(), eager: true, ..request.clone() }.redirected();
        let ended = self.run_once(agent, &request, progress, cancel).await;
        match ended.outcome {
            Ended::Complete => Ok(()),
            Ended::Cancelled => Err(Outcome::Cancelled),
            _ => Err(Outcome::Problem(Problem::new(
                ProblemKind::Run,
                ended.message.unwrap_or_default(),
                "",
            ))),
        }
    }

    async fn run_once(
        &self,
        agent: &Agent,
        request: &RunRequest,
        progress: &mpsc::Sender<ProgressEvent>,
        cancel: &CancellationToken,
    ) -> RunOutcome {
        let (events, mut received) = mpsc::channel(64);
        let run = agent.run(request.clone(), events, cancel.clone());
        let relay = async {
            while let Some(event) = received.recv().await {
                let (stage, share) = stage_of(&event, &request.iterations);
                send_progress(progress, stage, share);
            }
        };
        let (ended, ()) = tokio::join!(run, relay);
        let out = request.out.clone();
        let _ = blocking(move || make_recording_private(&out)).await;
        ended
    }

    /// Whether the user has set this agent mode (docs/configuration.md).
    fn mode_is(&self, wanted: &str) -> bool {
        let mode = self.surroundings.variables.get(OsStr::new("RIDGELINE_AGENT_MODE"));
        mode.is_some_and(|mode| mode == wanted)
    }

    /// The agent that measures a plan. For launched runs, it is always a new one.
    async fn agent_of(
        &self,
        plan: &Plan,
        interpreter: &Interpreter,
    ) -> Result<Arc<Agent>, Outcome> {
        if plan.launched_by.is_none() {
            return self.agent_for(plan, interpreter, true).await;
        }
        let options = AgentOptions { launch: true, ..self.agent_options(plan, interpreter) };
        Agent::start(options).await.map(Arc::new).map_err(agent_problem)
    }

    /// Whether background work may run on a busy machine. For tests, whose machines are always
    /// busy.
    fn ignores_machine_load(&self) -> bool {
        let background = self.surroundings.variables.get(OsStr::new("RIDGELINE_BACKGROUND"));
        background.is_some_and(|value| value == "always")
    }

    fn agent_options(&self, plan: &Plan, interpreter: &Interpreter) -> AgentOptions {
        AgentOptions {
            interpreter: interpreter.path.clone(),
            cache: self.store.cache().to_owned(),
            env: plan.environment().clone(),
            standby: self.mode_is("standby"),
            // Not the default before it has run on a GPU: docs/gpu-status.md.
            cuda: self.mode_is("warm-cuda"),
            launch: false,
            patience: Patience::default(),
        }
    }

    /// The agent of a plan: a warm one, or a new one that replaces the one unused for longest.
    async fn agent(&self, plan: &Plan, interpreter: &Interpreter) -> Result<Arc<Agent>, Outcome> {
        self.agent_for(plan, interpreter, false).await
    }

    /// Like [`Pipeline::agent`]. The process that imports the project's packages in advance is not
    /// sandboxed, so it only does so after the first run that the user allowed. That run does its
    /// own imports.
    async fn agent_for(
        &self,
        plan: &Plan,
        interpreter: &Interpreter,
        is_run: bool,
    ) -> Result<Arc<Agent>, Outcome> {
        let mut agents = self.agents.lock().await;
        let known = agents
            .iter()
            .position(|warm| {
                warm.root == plan.root
                    && warm.interpreter == interpreter.path
                    && warm.env == *plan.environment()
            })
            .map(|at| agents.remove(at));
        let mut warm = match known {
            Some(warm) => warm,
            None => {
                // Another Python for the same project replaces the previous one.
                agents.retain(|warm| warm.root != plan.root);
                while agents.len() >= WARM_AGENTS {
                    agents.remove(0);
                }
                let agent = Agent::start(self.agent_options(plan, interpreter))
                    .await
                    .map_err(agent_problem)?;
                Warm {
                    root: plan.root.clone(),
                    interpreter: interpreter.path.clone(),
                    env: plan.environment().clone(),
                    agent: Arc::new(agent),
                    prepared: None,
                    has_run: false,
                    used: Instant::now(),
                }
            }
        };
        warm.has_run |= is_run;
        let wanted = plan.prepare(warm.has_run);
        if warm.prepared.as_ref() != Some(&wanted) {
            warm.agent.prepare(wanted.clone()).await.map_err(agent_problem)?;
            warm.prepared = Some(wanted);
        }
        let agent = Arc::clone(&warm.agent);
        warm.used = Instant::now();
        agents.push(warm);
        if agents.len() > 1 {
            let mut ending = self.ending_idle.lock().unwrap_or_else(PoisonError::into_inner);
            if ending.as_ref().is_none_or(JoinHandle::is_finished) {
                *ending = Some(tokio::spawn(end_idle(Arc::downgrade(&self.agents))));
            }
        }
        Ok(agent)
    }
}

/// Ends agents that were unused for [`IDLE`], except the last one used.
async fn end_idle(agents: Weak<Mutex<Vec<Warm>>>) {
    loop {
        tokio::time::sleep(IDLE / 4).await;
        // The pipeline may be gone.
        let Some(agents) = agents.upgrade() else { return };
        let mut agents = agents.lock().await;
        let newest = agents.len().saturating_sub(1);
        let mut at = 0;
        agents.retain(|warm| {
            let is_newest = at == newest;
            at += 1;
            // An agent in use has another reference.
            is_newest || warm.used.elapsed() < IDLE || Arc::strong_count(&warm.agent) > 1
        });
        if agents.len() <= 1 {
            return;
        }
    }
}

/// Reads the newest finished recording of a project, or of the projects in a folder, without
/// running anything.
///
/// # Errors
/// If there is none, or it cannot be read.
pub(crate) fn newest(store: &Store, folder: &Path) -> Result<Profiled, String> {
    let (root, folder) = newest_recording(store, folder)
        .ok_or_else(|| format!("{} has not been profiled yet", folder.display()))?;
    measured(&root, &folder).map(|profiled| history::with_changes(store, profiled))
}

/// Like [`newest`], but returns `None` if there is none, or if it is the `known` one.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn newer(
    store: &Store,
    folder: &Path,
    known: Option<&Path>,
) -> Result<Option<Profiled>, String> {
    let newest = newest_recording(store, folder);
    let newer = newest.filter(|(_, recording)| Some(recording.as_path()) != known);
    let newer = newer.map(|(root, recording)| measured(&root, &recording)).transpose()?;
    Ok(newer.map(|profiled| history::with_changes(store, profiled)))
}

/// The newest finished recording of the project at `folder` and those below it, with its project's
/// root.
fn newest_recording(store: &Store, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let found = store.recorded_projects(folder).into_iter().filter_map(|root| {
        let recording = store.newest_recording(&root)?;
        let when = recording.metadata().and_then(|metadata| metadata.modified()).ok()?;
        Some((when, root, recording))
    });
    found.max().map(|(_, root, recording)| (root, recording))
}

/// Reads a trace, or a recording of which only the folder is known.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn open(path: &Path) -> Result<Profiled, String> {
    // With the recording itself as the root, its lines lead to no file.
    measured(path, path)
}

/// Reads and attributes a finished recording of the project at `root`.
///
/// # Errors
/// If it cannot be read.
fn measured(root: &Path, folder: &Path) -> Result<Profiled, String> {
    let eager = Some(folder.join("eager")).filter(|eager| eager.is_dir());
    let read = read(folder, eager.as_deref(), root).map_err(|error| error.to_string())?;
    Ok(recording::locate(read, root, None, folder))
}

async fn read_in_background(
    folder: &Path,
    eager: Option<PathBuf>,
    root: &Path,
) -> Result<Read, Outcome> {
    let (folder, root) = (folder.to_owned(), root.to_owned());
    blocking(move || read(&folder, eager.as_deref(), &root))
        .await?
        .map_err(|error| Outcome::Problem(Problem::new(ProblemKind::Files, error.to_string(), "")))
}

/// The stage of a run as shown to the user, and its share of the whole run.
fn stage_of(event: &RunEvent, iterations: &Iterations) -> (&'static str, f32) {
    let RunEvent::Progress { stage, done, total } = *event else {
        return match event {
            RunEvent::AgentStarting => ("starting Python", 0.02),
            _ => ("starting", 0.05),
        };
    };
    let all = (iterations.warmup + iterations.timed + iterations.profiled).max(1) as f32;
    let before = match stage {
        Stage::Starting | Stage::Estimating | Stage::Probing | Stage::WarmUp => 0,
        Stage::Timing => iterations.warmup,
        Stage::Profiling | Stage::Saving => iterations.warmup + iterations.timed,
    } as f32;
    let steps = if total > 0 { done.min(total) as f32 } else { 0.0 };
    let (first, last) = (0.1, 0.9);
    match stage {
        Stage::Starting => ("starting the program", 0.05),
        Stage::Estimating => ("estimating", 0.5),
        Stage::Probing => ("timing single operators", 0.5),
        Stage::WarmUp => ("warming up", first + (last - first) * (steps / all).min(1.0)),
        Stage::Timing => ("timing", first + (last - first) * ((before + steps) / all).min(1.0)),
        Stage::Profiling => {
            ("profiling", first + (last - first) * ((before + steps) / all).min(1.0))
        }
        Stage::Saving => ("saving", last),
    }
}

fn send_progress(progress: &mpsc::Sender<ProgressEvent>, stage: &str, share: f32) {
    // If the channel is full, the event is dropped.
    let _ = progress.try_send(ProgressEvent { stage: stage.to_owned(), share: Some(share) });
}

async fn or_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Outcome>>,
) -> Result<T, Outcome> {
    tokio::select! {
        () = cancel.cancelled() => Err(Outcome::Cancelled),
        result = work => result,
    }
}

/// Runs file access or computation on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Outcome> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        let what = format!("Ridgeline itself failed: {error}");
        Outcome::Problem(Problem::new(ProblemKind::Run, what, "Please report this"))
    })
}

fn files_problem(error: StoreError) -> Outcome {
    Outcome::Problem(Problem::new(ProblemKind::Files, error.to_string(), ""))
}

fn agent_problem(error: AgentError) -> Outcome {
    let kind = match error {
        AgentError::Unpack { .. } => ProblemKind::Files,
        _ => ProblemKind::Run,
    };
    Outcome::Problem(Problem::new(kind, error.to_string(), "Run `ridgeline doctor` for details"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_never_goes_back() {
        let iterations = Iterations::default();
        let mut events = vec![RunEvent::AgentStarting, RunEvent::Started { pid: 1 }];
        for (stage, total) in [
            (Stage::Starting, 0),
            (Stage::WarmUp, 2),
            (Stage::Timing, 3),
            (Stage::Profiling, 2),
            (Stage::Saving, 0),
        ] {
            events.extend((0..=total).map(|done| RunEvent::Progress { stage, done, total }));
        }
        let shares: Vec<f32> = events.iter().map(|event| stage_of(event, &iterations).1).collect();
        assert!(shares.is_sorted() && shares.iter().all(|share| *share <= 1.0), "{shares:?}");
    }
}
