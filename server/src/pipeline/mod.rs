//! From a request to a profile: chooses the script and the Python, starts the agent, runs the
//! program, and attributes its recording.

mod batch_size;
mod batch_size_question;
mod edited_memory;
mod estimate;
mod few_iterations;
mod gpu_rates;
mod measure;
mod missing_files;
mod notebook_commands;
mod numerics;
mod outcome;
mod plan;
mod probe_cache;
mod probes;
mod program;
mod ranks;
mod recording;
mod reuse;
mod run_facts;
mod server;
mod side_by_side;
mod stage;
mod step;
mod stored;
mod unbuilt_module;
mod unsaved;
mod warm_agents;
mod what_if;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use ridgeline_gpu::agent::{Agent, Outcome as AgentOutcome, RunOutcome, RunRequest};
use ridgeline_gpu::interpreter::{self, Candidate, Consent, Interpreter, SystemEnvironment};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use edited_memory::edited_peaks;
use few_iterations::fewer_iterations;
pub(crate) use measure::{Compared, Overlay};
pub(crate) use outcome::{Outcome, Problem, ProblemKind, ProgramFailure};
pub(crate) use plan::{
    Overrides, Plan, Request, TypedCommand, cell_request, configured_python, plan,
};
pub(crate) use probes::{known_probes, stored_probes};
pub(crate) use program::first_few;
use recording::{LoadedRecording, read};
pub(crate) use recording::{add_ranks, is_recording, load};
use stage::stage_of;
pub(crate) use stored::{add, measured, newer, newest, open};
use warm_agents::WarmAgent;
pub(crate) use what_if::{Iteration, recorded_run};

use crate::discover::Discovery;
use crate::history;
use crate::profiler::{Profiled, ProgressEvent};
use crate::store::{Store, StoreError, discard_data, make_recording_private};

/// Profiles projects. Keeps what makes the next run faster: warm agents, interpreters that were
/// already queried, and what discovery has learned about files.
pub(crate) struct Pipeline {
    store: Store,
    system: SystemEnvironment,
    discovery: Arc<std::sync::Mutex<Discovery>>,
    interpreters: Mutex<Vec<(Vec<Candidate>, Interpreter)>>,
    /// The one used last is at the end.
    agents: Arc<Mutex<Vec<WarmAgent>>>,
    saved_lists: Mutex<Vec<estimate::SavedList>>,
    ending_idle: std::sync::Mutex<Option<JoinHandle<()>>>,
    /// Whether it lives on after a run, so that the first one prepares the next.
    is_lasting: bool,
}

impl Pipeline {
    /// Creates a pipeline that stores its data in `store`.
    pub(crate) fn new(store: Store) -> Pipeline {
        let system =
            SystemEnvironment { variables: std::env::vars_os().collect(), windows: cfg!(windows) };
        Pipeline {
            store,
            system,
            discovery: Arc::default(),
            interpreters: Mutex::default(),
            agents: Arc::default(),
            saved_lists: Mutex::default(),
            ending_idle: std::sync::Mutex::default(),
            is_lasting: false,
        }
    }

    /// A pipeline of a server, in which the first run of a program prepares the next ones.
    pub(crate) fn lasting(store: Store) -> Pipeline {
        Pipeline { is_lasting: true, ..Pipeline::new(store) }
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
        let candidates = interpreter::candidates(&plan.search, &self.system);
        let mut known = self.interpreters.lock().await;
        if let Some((_, found)) = known.iter().find(|(known, _)| *known == candidates) {
            return Ok(found.clone());
        }
        let found = interpreter::find(&plan.search, &self.system, Consent::Given)
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
        send_progress(progress, stage::STARTING_PYTHON, 0.02);
        let agent = or_cancelled(cancel, self.agent_for_measuring(plan, &interpreter)).await?;
        let store = self.store.clone();
        let root = plan.root.clone();
        let folder = blocking(move || store.new_recording(&root)).await?.map_err(files_problem)?;

        let started = SystemTime::now();
        let mut request = plan.launched_request(folder.clone());
        let (mut ended, run_notes) =
            self.run_until_enough(&agent, &mut request, progress, cancel).await;
        let mut notes = plan.notes.clone();
        notes.extend(run_notes);
        if ended.outcome != AgentOutcome::Complete {
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
        let profiled = recording::locate(read, &plan.root, Some(&interpreter), &folder);
        let store = self.store.clone();
        blocking(move || history::add(&store, profiled)).await
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
            AgentOutcome::Complete => Ok(()),
            AgentOutcome::Cancelled => Err(Outcome::Cancelled),
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
                send_progress(progress, &stage, share);
            }
        };
        let (ended, ()) = tokio::join!(run, relay);
        let out = request.out.clone();
        let _ = blocking(move || make_recording_private(&out)).await;
        ended
    }

    /// Returns whether background work may run on a busy machine. For tests, whose machines are
    /// always busy.
    fn ignores_machine_load(&self) -> bool {
        let background = self.system.variables.get(OsStr::new("RIDGELINE_BACKGROUND"));
        background.is_some_and(|value| value == "always")
    }
}

async fn read_in_background(
    folder: &Path,
    eager: Option<PathBuf>,
    root: &Path,
) -> Result<LoadedRecording, Outcome> {
    let (folder, root) = (folder.to_owned(), root.to_owned());
    blocking(move || read(&folder, eager.as_deref(), &root))
        .await?
        .map_err(|error| Outcome::Problem(Problem::new(ProblemKind::Files, error.to_string(), "")))
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
