//! Random sequences of user and editor actions, against a model of consent: no workspace code runs
//! without it, and running code ends within a second of its end.
//!
//! Time is tokio's paused clock and only advances in steps that wait, so the test does not depend
//! on the machine's speed. The file is one model and its steps, so it is not split.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tower_lsp::ls_types::ExecuteCommandParams;

use super::fake::{SCRIPT, measured_in, uri};
use crate::batch::{SweepEffort, SweepEnd, SweepRequest, SweepResults};
use crate::consent::Permit;
use crate::documents::{Change, DocumentId};
use crate::event::{Event, Notification};
use crate::event_loop;
use crate::live::{EstimateOutcome, EstimateRequest};
use crate::lsp::client::ToClient;
use crate::lsp::from_proto::document_id;
use crate::outbox::Outbox;
use crate::profiler::{
    BoxedFuture, ProfileOutcome, ProfileRequest, Profiler, Program, ProgressEvent, RunChoice,
};
use crate::requests::Request;
use crate::state::{Client, GlobalState};
use crate::store::Store;

/// One action. The first number selects one of the two workspaces.
#[derive(Clone, Debug)]
enum Step {
    Save(usize),
    Edit(usize),
    Profile(usize),
    Sweep(usize),
    Allow(usize),
    Revoke(usize),
    Stop(usize),
    Pause(usize),
    Resume(usize),
    /// The folder is closed or opened again.
    Toggle(usize),
    /// Another project replaces it on disk.
    Replace(usize),
    /// One of the open questions, perhaps an old one, gets an answer: which question, and which
    /// answer.
    Answer(prop::sample::Index, usize),
    /// Time passes, in units of 0.1 s.
    Wait(u64),
    /// The server is restarted.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let of = 0_usize..2;
    prop_oneof![
        5 => of.clone().prop_map(Step::Save),
        2 => of.clone().prop_map(Step::Edit),
        1 => of.clone().prop_map(Step::Profile),
        3 => of.clone().prop_map(Step::Sweep),
        1 => of.clone().prop_map(Step::Allow),
        2 => of.clone().prop_map(Step::Revoke),
        1 => of.clone().prop_map(Step::Stop),
        1 => of.clone().prop_map(Step::Pause),
        1 => of.clone().prop_map(Step::Resume),
        1 => of.clone().prop_map(Step::Toggle),
        1 => of.prop_map(Step::Replace),
        6 => (any::<prop::sample::Index>(), 0_usize..4).prop_map(|(which, how)| Step::Answer(which, how)),
        4 => (1_u64..20).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

/// The user's consent.
#[derive(Debug, Default)]
struct Consent {
    is_allowed: bool,
    /// Whether one run is allowed.
    once: bool,
    is_paused: bool,
    is_closed: bool,
    /// Incremented on each revocation. `round` is incremented on each answer.
    epoch: u64,
    round: u64,
}

impl Consent {
    fn take_back(&mut self) {
        self.is_allowed = false;
        self.once = false;
        self.epoch += 1;
    }
}

/// A running job.
#[derive(Debug)]
struct Job {
    root: PathBuf,
    what: String,
    is_asked: bool,
}

#[derive(Debug, Default)]
struct World {
    consent: HashMap<PathBuf, Consent>,
    jobs: HashMap<u64, Job>,
    last: u64,
    starts: usize,
    /// Jobs that ran without consent.
    wrong: Vec<String>,
    /// The state of the random numbers that decide how jobs behave.
    dice: u64,
}

impl World {
    fn roll(&mut self) -> u64 {
        // Knuth's multiplier. The high bits are good enough for a test.
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.dice >> 33
    }
}

/// Counts started jobs, and checks whether they may run.
#[derive(Clone, Default)]
struct Counting(Arc<Mutex<World>>);

/// Records the end of a job, however it ends.
struct Running(Counting, u64);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.world().jobs.remove(&self.1);
    }
}

impl Counting {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no test panics with it")
    }

    /// Simulates workspace code that runs for some time and may be slow to react to a stop.
    fn run(&self, root: &Path, what: &str, is_asked: bool, permit: Permit) -> BoxedFuture<()> {
        let running = {
            let mut world = self.world();
            let consent = world.consent.entry(root.to_owned()).or_default();
            let once = permit.is_once() && std::mem::take(&mut consent.once);
            let may = (consent.is_allowed || once) && !consent.is_closed;
            let is_paused = consent.is_paused && !is_asked;
            let job = format!("{what} of {} with {consent:?}", root.display());
            if !may || is_paused {
                world.wrong.push(format!("began without consent: {job}"));
            }
            world.starts += 1;
            world.last += 1;
            let number = world.last;
            let job = Job { root: root.to_owned(), what: what.to_owned(), is_asked };
            world.jobs.insert(number, job);
            Running(self.clone(), number)
        };
        let (tenths, is_deaf) = {
            let mut world = self.world();
            (1 + world.roll() % 40, world.roll().is_multiple_of(4))
        };
        Box::pin(async move {
            let _running = running;
            for _ in 0..tenths {
                if !is_deaf && !permit.is_valid() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

impl Profiler for Counting {
    fn profile(
        &self,
        request: ProfileRequest,
        _: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<ProfileOutcome> {
        let (runs, root) = (self.clone(), request.root);
        Box::pin(async move {
            // The script is chosen before anything runs.
            if request.script.is_none() && runs.world().roll().is_multiple_of(2) {
                let runs = vec![choice(&script_of(&root)), choice("other.py")];
                return ProfileOutcome::Choose { runs };
            }
            // The profiler does not know whether the user requested the run.
            runs.run(&root, "run", true, permit).await;
            let fate = runs.world().roll() % 3;
            match fate {
                1 => ProfileOutcome::Problem { message: "a problem".to_owned(), log: None },
                _ => measured_in(&root),
            }
        })
    }

    fn find_program(
        &self,
        request: ProfileRequest,
    ) -> BoxedFuture<Result<Program, ProfileOutcome>> {
        let roll = self.world().roll() % 4;
        let is_chosen = request.script.is_some();
        Box::pin(async move {
            match roll {
                0 if !is_chosen => {
                    let runs = vec![choice(&script_of(&request.root)), choice(BEFORE_TRUST)];
                    Err(ProfileOutcome::Choose { runs })
                }
                1 => Err(ProfileOutcome::NothingToRun { message: "nothing".to_owned() }),
                _ => Ok(Program::default()),
            }
        })
    }

    fn prepare(&self, request: ProfileRequest, permit: Permit) -> BoxedFuture<()> {
        let runs = self.clone();
        Box::pin(async move { runs.run(&request.root, "import", false, permit).await })
    }

    fn estimate(&self, request: EstimateRequest, permit: Permit) -> BoxedFuture<EstimateOutcome> {
        let runs = self.clone();
        Box::pin(async move {
            runs.run(&request.profile.root, "estimate", false, permit).await;
            EstimateOutcome::Nothing
        })
    }

    fn sweep_batch_sizes(
        &self,
        request: SweepRequest,
        _: mpsc::Sender<SweepResults>,
        _: mpsc::Sender<ProgressEvent>,
        permit: Permit,
    ) -> BoxedFuture<SweepEnd> {
        let runs = self.clone();
        let is_asked = request.effort == SweepEffort::Runs;
        Box::pin(async move {
            for _ in 0..5 {
                if !permit.is_valid() {
                    break;
                }
                runs.run(&request.profile.root, "batch", is_asked, permit.clone()).await;
            }
            SweepEnd::Done
        })
    }
}

/// A choice that is offered before the user is asked for trust, so that its answer grants nothing.
const BEFORE_TRUST: &str = "before_trust.py";

fn choice(command: &str) -> RunChoice {
    RunChoice { command: command.to_owned(), why: String::new() }
}

/// An open question, with the state when it was asked.
struct Open {
    id: Value,
    outbox: Outbox,
    at: usize,
    /// Whether it asks which script to run.
    is_choice: bool,
    epoch: u64,
    round: u64,
    is_within_once: bool,
    session: u64,
}

struct Play {
    world: Counting,
    folder: tempfile::TempDir,
    roots: [PathBuf; 2],
    open: Vec<Open>,
    /// Whether the script is open, by folder.
    has_open: [bool; 2],
    session: u64,
    versions: i32,
    replaced: u32,
    events: mpsc::Sender<Event>,
    frames: mpsc::Receiver<Vec<u8>>,
    outbox: Outbox,
    looping: tokio::task::JoinHandle<()>,
}

impl Play {
    async fn begin(seed: u64) -> Play {
        let folder = tempfile::tempdir().expect("a folder");
        let place = crate::documents::real_path(folder.path());
        let roots = ["first", "second"].map(|name| place.join(name));
        let world = Counting::default();
        world.world().dice = seed;
        for root in &roots {
            fs::create_dir(root).expect("created");
            fs::write(root.join("train.py"), SCRIPT).expect("written");
            world.world().consent.insert(root.clone(), Consent::default());
        }
        let (events, frames, outbox, looping) = serve(&folder, &world);
        let mut play = Play {
            world,
            folder,
            roots,
            open: Vec::new(),
            has_open: [false, false],
            session: 0,
            versions: 1,
            replaced: 0,
            events,
            frames,
            outbox,
            looping,
        };
        play.greet().await;
        play
    }

    async fn greet(&mut self) {
        let options = json!({
            "watchFiles": false, "live.delayMilliseconds": 0, "batchSize.measureInBackground": true,
        });
        let is_open = |root: &&PathBuf| !self.world.world().consent[*root].is_closed;
        let roots: Vec<PathBuf> = self.roots.iter().filter(is_open).cloned().collect();
        let client = Client { roots, options, ..Client::default() };
        self.notify(Notification::Initialize(Box::new(client))).await;
        self.notify(Notification::Initialized).await;
        self.has_open = [false, false];
        for at in 0..2 {
            // An open document also makes its folder a workspace.
            if !self.consent(at, |consent| consent.is_closed) {
                self.open_script(at).await;
            }
        }
    }

    /// Opens the script, unless it is already open in this session.
    async fn open_script(&mut self, at: usize) {
        if std::mem::replace(&mut self.has_open[at], true) {
            return;
        }
        let path = self.roots[at].join("train.py");
        let (id, uri) = (document(&path), uri(&path));
        self.notify(Notification::Opened { id, uri, text: SCRIPT.to_owned(), version: 1 }).await;
    }

    async fn notify(&mut self, notification: Notification) {
        let (done, acknowledged) = oneshot::channel();
        let _ = self.events.send(Event::Notification(notification, done)).await;
        acknowledged.await.expect("it is handled");
        self.settle().await;
    }

    async fn command(&mut self, name: &str, at: usize) {
        let (reply, answer) = oneshot::channel();
        let params = ExecuteCommandParams {
            command: name.to_owned(),
            arguments: vec![json!(uri(&self.roots[at]))],
            ..ExecuteCommandParams::default()
        };
        let _ = self.events.send(Event::Request(Request::ExecuteCommand(params, reply))).await;
        // A stop is answered when its jobs have ended, which takes time.
        self.settle().await;
        drop(answer);
    }

    /// Lets all tasks progress without advancing time, and reads the server's requests.
    async fn settle(&mut self) {
        for _ in 0..300 {
            yield_now().await;
            while let Ok(frame) = self.frames.try_recv() {
                self.read(&frame);
            }
        }
    }

    fn read(&mut self, frame: &[u8]) {
        let text = std::str::from_utf8(frame).expect("text");
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body).expect("a frame");
        let message: Value = serde_json::from_str(body).expect("JSON");
        let text = message["params"]["message"].as_str().unwrap_or_default();
        // An event whose handler panicked, such as one for a deleted folder.
        if text.contains("internal error") {
            self.world.world().wrong.push(text.to_owned());
        }
        if message["method"] != "window/showMessageRequest" {
            return;
        }
        let is_choice = text.starts_with("Several scripts");
        let titles = message["params"]["actions"].to_string();
        let is_of = |root: &&PathBuf| match is_choice {
            true => titles.contains(&script_of(root)),
            false => text.contains(&format!(" in {} to profile it?", name_of(root))),
        };
        let root = self.roots.iter().find(is_of).cloned();
        let Some(root) = root else { return };
        let at = usize::from(root != self.roots[0]);
        let (epoch, round, is_within_once) =
            self.consent(at, |consent| (consent.epoch, consent.round, !consent.is_allowed));
        let is_within_once = is_within_once && !titles.contains(BEFORE_TRUST);
        let (id, outbox, session) = (message["id"].clone(), self.outbox.clone(), self.session);
        self.open.push(Open { id, outbox, at, is_choice, epoch, round, is_within_once, session });
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Save(at) => {
                let id = document(&self.roots[at].join("train.py"));
                self.notify(Notification::Saved(id)).await;
            }
            Step::Edit(at) => {
                let id = document(&self.roots[at].join("train.py"));
                self.versions += 1;
                let change = Change::Whole(format!("{SCRIPT}# {}\n", self.versions));
                self.notify(Notification::Changed(id, self.versions, vec![change])).await;
            }
            Step::Profile(at) => self.command("ridgeline.profile", at).await,
            Step::Sweep(at) => self.command("ridgeline.exploreBatchSize", at).await,
            Step::Allow(at) => {
                self.consent(at, |consent| {
                    consent.is_allowed |= !consent.is_closed;
                    consent.round += 1;
                });
                self.command("ridgeline.trust", at).await;
            }
            Step::Revoke(at) => {
                self.command("ridgeline.revokeTrust", at).await;
                // A command for a closed folder applies to no folder.
                let is_closed = self.consent(at, |consent| consent.is_closed);
                if !is_closed {
                    self.consent(at, Consent::take_back);
                    self.assert_ended(at, true).await;
                }
            }
            Step::Stop(at) => {
                self.command("ridgeline.stop", at).await;
                self.consent(at, |consent| consent.once = false);
                self.assert_ended(at, true).await;
            }
            Step::Pause(at) => {
                self.command("ridgeline.pause", at).await;
                self.consent(at, |consent| consent.is_paused = !consent.is_closed);
                self.assert_ended(at, false).await;
            }
            Step::Resume(at) => {
                self.consent(at, |consent| consent.is_paused = false);
                self.command("ridgeline.resume", at).await;
            }
            Step::Toggle(at) => self.toggle(at).await,
            Step::Replace(at) => {
                let root = &self.roots[at];
                self.replaced += 1;
                let aside = root.with_file_name(format!("before-{}", self.replaced));
                fs::rename(root, aside).expect("moved");
                fs::create_dir(root).expect("created");
                fs::write(root.join("train.py"), SCRIPT).expect("written");
                self.consent(at, Consent::take_back);
                // It is noticed at the next event there.
                if !self.consent(at, |consent| consent.is_closed) {
                    let id = document(&self.roots[at].join("train.py"));
                    self.notify(Notification::Saved(id)).await;
                    if !self.consent(at, |consent| consent.is_paused) {
                        self.assert_ended(at, true).await;
                    }
                }
            }
            Step::Answer(which, how) => self.answer(which, how).await,
            Step::Wait(tenths) => self.wait(tenths).await,
            Step::Restart => self.restart().await,
        }
    }

    async fn toggle(&mut self, at: usize) {
        let root = self.roots[at].clone();
        let is_closed = self.consent(at, |consent| consent.is_closed);
        if is_closed {
            self.consent(at, |consent| (consent.is_closed, consent.is_paused) = (false, false));
            self.notify(Notification::FoldersChanged(vec![root], Vec::new())).await;
            self.open_script(at).await;
        } else {
            self.notify(Notification::FoldersChanged(Vec::new(), vec![root])).await;
            self.consent(at, |consent| {
                (consent.is_closed, consent.once) = (true, false);
                consent.epoch += 1;
            });
            self.assert_ended(at, true).await;
        }
    }

    async fn answer(&mut self, which: prop::sample::Index, how: usize) {
        if self.open.is_empty() {
            return;
        }
        let open = self.open.remove(which.index(self.open.len()));
        let titles = ["Run once", "Always for this workspace", "Never"];
        let title = match open.is_choice {
            true => (how < 2).then(|| script_of(&self.roots[open.at])),
            false => titles.get(how).map(|title| (*title).to_owned()),
        };
        let answer = title.map_or(Value::Null, |title| json!({"title": title}));
        let is_here = open.session == self.session;
        let is_refusal = !open.is_choice && how == 2;
        self.consent(open.at, |consent| {
            let is_current = is_here && open.epoch == consent.epoch && !consent.is_closed;
            if open.is_choice {
                consent.once |= is_current && how < 2 && open.is_within_once && !consent.is_allowed;
                return;
            }
            let is_open = is_current && open.round == consent.round && how < 2;
            consent.once |= is_open && how == 0;
            consent.is_allowed |= is_open && how == 1;
            consent.round += u64::from(is_open);
        });
        open.outbox.answered(&open.id, Ok(answer));
        self.settle().await;
        // A refusal is never too late, not even for a folder that was closed in the meantime.
        if is_refusal && is_here {
            self.consent(open.at, Consent::take_back);
            self.assert_ended(open.at, true).await;
        }
    }

    async fn restart(&mut self) {
        self.looping.abort();
        let _ = (&mut self.looping).await;
        for at in 0..2 {
            self.consent(at, |consent| (consent.once, consent.is_paused) = (false, false));
            self.assert_ended(at, true).await;
        }
        self.session += 1;
        (self.events, self.frames, self.outbox, self.looping) = serve(&self.folder, &self.world);
        self.greet().await;
    }

    fn consent<T>(&self, at: usize, change: impl FnOnce(&mut Consent) -> T) -> T {
        let mut world = self.world.world();
        change(world.consent.entry(self.roots[at].clone()).or_default())
    }

    async fn wait(&mut self, tenths: u64) {
        for _ in 0..tenths {
            tokio::time::advance(Duration::from_millis(100)).await;
            self.settle().await;
        }
    }

    /// Checks that the jobs of a workspace have ended one second later. Requested jobs only count
    /// if `with_asked`.
    async fn assert_ended(&mut self, at: usize, with_asked: bool) {
        let root = self.roots[at].clone();
        let before = self.world.world().last;
        self.wait(10).await;
        let mut world = self.world.world();
        let left: Vec<String> = (world.jobs.iter())
            .filter(|(number, job)| {
                **number <= before && job.root == root && (with_asked || !job.is_asked)
            })
            .map(|(_, job)| format!("{} of {} goes on a second later", job.what, root.display()))
            .collect();
        world.wrong.extend(left);
    }
}

fn serve(
    folder: &tempfile::TempDir,
    world: &Counting,
) -> (mpsc::Sender<Event>, mpsc::Receiver<Vec<u8>>, Outbox, tokio::task::JoinHandle<()>) {
    let store = Store::at(folder.path().join("cache"), folder.path().join("state"));
    let (outbox, frames) = Outbox::new(4096);
    let (events, received) = mpsc::channel(256);
    let to_client = ToClient::new(outbox.clone());
    let state = GlobalState::new(events.clone(), to_client, Arc::new(world.clone()), Some(store));
    (events, frames, outbox, tokio::spawn(event_loop::run(state, received)))
}

fn document(path: &Path) -> DocumentId {
    document_id(&uri(path).parse().expect("a URI"))
}

/// The first offered script, whose name identifies the folder.
fn script_of(root: &Path) -> String {
    format!("{}.py", name_of(root))
}

fn name_of(root: &Path) -> String {
    root.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Plays the steps. Returns the violations and the number of started jobs.
fn play(seed: u64, steps: Vec<Step>) -> (Vec<String>, usize) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut play = Play::begin(seed).await;
        for step in steps {
            play.take(step).await;
        }
        play.restart().await;
        let world = play.world.world();
        (world.wrong.clone(), world.starts)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_runs_without_consent(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40)) {
        let history = format!("{steps:?}");
        let (wrong, _) = play(seed, steps);
        prop_assert!(wrong.is_empty(), "{wrong:#?} after {history}");
    }
}

/// Guards against a vacuous model: it would also hold for a server that runs nothing.
#[test]
fn with_consent_things_run() {
    let steps = [Step::Allow(0), Step::Save(0), Step::Wait(40), Step::Sweep(0), Step::Wait(40)];
    let (wrong, starts) = play(1, steps.to_vec());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(starts >= 3, "{starts} things ran");
}
