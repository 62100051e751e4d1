//! The one gate through which every start of workspace code passes.
//!
//! Whoever starts something of a workspace (a run, its imports ahead of a run, an estimate, another batch
//! size, single operators in its Python, a GPU measured with its libraries) needs a [`Permit`], which the
//! [`Gate`] alone gives. What takes consent back also takes back the permits that were given: the job ends
//! by itself when it sees that, and is dropped where it has not ended after [`GRACE`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::scheduler::WorkspaceId;
use crate::store::StoreError;
use crate::trust::{Answer, Decision, Trust};

/// How long a job whose permit was taken back may take to end in good order, before it is dropped. With
/// what its processes need to end it is less than a second.
pub(crate) const GRACE: Duration = Duration::from_millis(700);

/// Who wants something to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The person, now: a command, a button, an answer to a question.
    Asked,
    /// A save, a change on the disk, or the server by itself. A pause ends it.
    Unasked,
}

/// What a job is, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run in the queue, which has a status and a progress of its own.
    Run,
    /// Imports ahead of a run, which have a status of their own.
    Preparing,
    /// Everything else.
    Background,
}

/// The right to run code of one workspace, until it is taken back. Clones are the same right.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    job: Arc<Job>,
}

#[derive(Debug)]
struct Job {
    kind: Kind,
    what: Mutex<String>,
    is_once: bool,
    /// Cancelled where consent, or the wish for the job, was taken back.
    withdrawn: CancellationToken,
    /// The job's own end: a newer save, a key, another run that comes first. A child of `withdrawn`.
    ended: CancellationToken,
    changed: watch::Sender<u64>,
}

impl Job {
    fn what(&self) -> String {
        self.what.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Permit {
    /// Whether the job may go on.
    pub(crate) fn is_valid(&self) -> bool {
        !self.job.ended.is_cancelled()
    }

    /// Whether consent was taken back, rather than that something else came first.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.job.withdrawn.is_cancelled()
    }

    /// Whether it was given for this one run only.
    pub(crate) fn is_once(&self) -> bool {
        self.job.is_once
    }

    /// Says what the job does now, in a person's words.
    pub(crate) fn say(&self, what: String) {
        *self.job.what.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.job.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Cancelled when the job is to end.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.job.ended
    }

    /// Waits for `work`, which ends by itself soon after the permit does. Where it does not, it is dropped
    /// [`GRACE`] after consent was taken back, and there is no result.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let overstays = async {
            self.job.withdrawn.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = overstays => None,
        }
    }

    /// A permit that no gate gave.
    #[cfg(test)]
    pub(crate) fn for_test() -> Permit {
        let withdrawn = CancellationToken::new();
        let ended = withdrawn.child_token();
        let (changed, _) = watch::channel(0);
        let (kind, what, is_once) = (Kind::Run, Mutex::default(), false);
        Permit { job: Arc::new(Job { kind, what, is_once, withdrawn, ended, changed }) }
    }
}

/// A question to the person that may end in something being run. It counts for the consent under which
/// it was put: whoever answers it after that was taken back is answering an old question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    epoch: u64,
    round: u64,
    /// It was put within the one run that the person allowed, and the answer is a part of that.
    is_within_once: bool,
}

/// A workspace's consent.
#[derive(Debug)]
struct Consent {
    /// Its folder, which decisions are about.
    root: PathBuf,
    /// Another number each time that consent is taken back. Numbers are not used twice.
    epoch: u64,
    /// Another number each time that the question whether it may run is answered.
    round: u64,
    is_paused: bool,
    /// One run may start.
    once: bool,
    /// All of its jobs.
    work: CancellationToken,
    /// Those that nobody asked for; a child of `work`.
    unasked: CancellationToken,
    jobs: Vec<Weak<Job>>,
}

impl Consent {
    fn new(root: &Path, epoch: u64, session: &CancellationToken) -> Consent {
        let work = session.child_token();
        let unasked = work.child_token();
        let (is_paused, once, jobs) = (false, false, Vec::new());
        Consent { root: root.to_owned(), epoch, round: 0, is_paused, once, work, unasked, jobs }
    }

    fn withdraw(&mut self, session: &CancellationToken) {
        self.once = false;
        self.work.cancel();
        self.work = session.child_token();
        self.unasked = self.work.child_token();
    }

    fn jobs(&self) -> impl Iterator<Item = Arc<Job>> {
        self.jobs.iter().filter_map(Weak::upgrade)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    trust: Trust,
    session: CancellationToken,
    workspaces: HashMap<WorkspaceId, Consent>,
    last_epoch: u64,
    changed: watch::Sender<u64>,
}

impl Gate {
    /// Nothing is permitted yet but what `trust` allows.
    pub(crate) fn new(trust: Trust) -> Gate {
        let (changed, _) = watch::channel(0);
        let session = CancellationToken::new();
        Gate { trust, session, workspaces: HashMap::new(), last_epoch: 0, changed }
    }

    /// Takes other decisions in place of those before: the client has said who it is.
    pub(crate) fn set_trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    /// Tells each time that a job ends, or does something else.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What may run in the workspace at `root`. Where another folder has taken its place, nothing may, and
    /// what runs ends.
    pub(crate) fn decision(&mut self, id: WorkspaceId) -> Decision {
        let Some(consent) = self.workspaces.get(&id) else { return Decision::Unknown };
        let (decision, is_replaced) = self.trust.decision(&consent.root);
        if is_replaced {
            self.withdraw(id);
        }
        decision
    }

    /// Looks after a workspace from now on: before that, nothing of it is permitted.
    pub(crate) fn add(&mut self, id: WorkspaceId, root: &Path) {
        if !self.workspaces.contains_key(&id) {
            self.last_epoch += 1;
            let consent = Consent::new(root, self.last_epoch, &self.session);
            self.workspaces.insert(id, consent);
        }
    }

    /// The folder is not looked after any more.
    pub(crate) fn remove(&mut self, id: WorkspaceId) {
        if let Some(mut consent) = self.workspaces.remove(&id) {
            consent.withdraw(&self.session);
        }
    }

    /// A question that is put now; `within` the run that it came up in.
    pub(crate) fn question(&self, id: WorkspaceId, within: Option<&Permit>) -> Question {
        let consent = self.workspaces.get(&id);
        let (epoch, round) = consent.map_or((0, 0), |consent| (consent.epoch, consent.round));
        let is_within_once = within.is_some_and(Permit::is_once);
        Question { epoch, round, is_within_once }
    }

    /// Whether nothing was taken back since a question was put.
    pub(crate) fn is_current(&mut self, id: WorkspaceId, question: Question) -> bool {
        // The folder may be another one by now.
        self.decision(id);
        self.workspaces.get(&id).is_some_and(|consent| consent.epoch == question.epoch)
    }

    /// Takes the answer to the question whether the workspace may run. It is false where the question is an
    /// old one, and nothing is granted then; a refusal is never too late.
    ///
    /// # Errors
    /// Where the decision cannot be written. It holds for the session.
    pub(crate) fn answer(
        &mut self,
        id: WorkspaceId,
        question: Question,
        answer: Answer,
    ) -> Result<bool, StoreError> {
        if answer == Answer::Never {
            self.withdraw(id);
            let Some(consent) = self.workspaces.get(&id) else { return Ok(true) };
            return self.trust.decide(&consent.root, false).map(|()| true);
        }
        let is_current = self.is_current(id, question);
        let Some(consent) = self.workspaces.get_mut(&id) else { return Ok(false) };
        if !is_current || consent.round != question.round {
            return Ok(false);
        }
        consent.round += 1;
        if answer == Answer::Once {
            consent.once = true;
            return Ok(true);
        }
        self.trust.decide(&consent.root, true).map(|()| true)
    }

    /// Lets the run go on that a question was put within; whether it may.
    pub(crate) fn go_on(&mut self, id: WorkspaceId, question: Question) -> bool {
        if !self.is_current(id, question) {
            return false;
        }
        if self.decision(id) == Decision::Allowed {
            return true;
        }
        let Some(consent) = self.workspaces.get_mut(&id) else { return false };
        consent.once |= question.is_within_once;
        question.is_within_once
    }

    /// The person allows the workspace by command.
    ///
    /// # Errors
    /// As [`Gate::answer`].
    pub(crate) fn allow(&mut self, id: WorkspaceId) -> Result<(), StoreError> {
        let Some(consent) = self.workspaces.get_mut(&id) else { return Ok(()) };
        consent.round += 1;
        self.trust.decide(&consent.root, true)
    }

    /// Takes every decision back.
    ///
    /// # Errors
    /// Where the file that holds it cannot be removed; nothing runs in this session all the same.
    pub(crate) fn revoke(&mut self, id: WorkspaceId) -> Result<(), StoreError> {
        self.withdraw(id);
        let Some(consent) = self.workspaces.get(&id) else { return Ok(()) };
        self.trust.revoke(&consent.root)
    }

    /// Ends what runs or is about to run; whether there was anything. The decision stands: the next wish
    /// gets a new permit.
    pub(crate) fn stop(&mut self, id: WorkspaceId) -> bool {
        let Some(consent) = self.workspaces.get_mut(&id) else { return false };
        let was_busy = consent.jobs().any(|job| !job.ended.is_cancelled());
        consent.withdraw(&self.session);
        was_busy
    }

    /// Ends what nobody asked for, and permits none of it until [`Gate::resume`].
    pub(crate) fn pause(&mut self, id: WorkspaceId) {
        if let Some(consent) = self.workspaces.get_mut(&id) {
            consent.is_paused = true;
            consent.unasked.cancel();
            consent.unasked = consent.work.child_token();
        }
    }

    /// Permits again what nobody asks for.
    pub(crate) fn resume(&mut self, id: WorkspaceId) {
        if let Some(consent) = self.workspaces.get_mut(&id) {
            consent.is_paused = false;
        }
    }

    /// Whether the workspace is paused.
    pub(crate) fn is_paused(&self, id: WorkspaceId) -> bool {
        self.workspaces.get(&id).is_some_and(|consent| consent.is_paused)
    }

    /// The session is over: everything ends, and nothing is permitted any more.
    pub(crate) fn close(&mut self) {
        self.session.cancel();
    }

    /// A permit for a job of the queue. It uses up what "once" allowed.
    pub(crate) fn permit_run(
        &mut self,
        id: WorkspaceId,
        cause: Cause,
        what: String,
    ) -> Option<Permit> {
        let is_allowed = self.decision(id) == Decision::Allowed;
        let consent = self.workspaces.get_mut(&id)?;
        let is_once = std::mem::take(&mut consent.once) && !is_allowed;
        if !is_allowed && !is_once {
            return None;
        }
        // Who answers "run once" asks for that run.
        let cause = if is_once { Cause::Asked } else { cause };
        self.give(id, cause, Kind::Run, what, is_once)
    }

    /// A permit for anything else; nothing where the person did not allow every run.
    pub(crate) fn permit(
        &mut self,
        id: WorkspaceId,
        cause: Cause,
        kind: Kind,
        what: impl Into<String>,
    ) -> Option<Permit> {
        let is_allowed = self.decision(id) == Decision::Allowed;
        is_allowed.then(|| self.give(id, cause, kind, what.into(), false)).flatten()
    }

    /// What is busy with a workspace beside a run and its preparation, in a person's words.
    pub(crate) fn in_background(&self, id: WorkspaceId) -> Option<String> {
        let mut jobs = self.workspaces.get(&id)?.jobs();
        jobs.find(|job| job.kind == Kind::Background).map(|job| job.what())
    }

    /// Whether anything of a workspace runs or is about to.
    pub(crate) fn is_busy(&self, id: WorkspaceId) -> bool {
        self.workspaces.get(&id).is_some_and(|consent| consent.jobs().next().is_some())
    }

    fn give(
        &mut self,
        id: WorkspaceId,
        cause: Cause,
        kind: Kind,
        what: String,
        is_once: bool,
    ) -> Option<Permit> {
        let consent = self.workspaces.get_mut(&id)?;
        if self.session.is_cancelled() || (consent.is_paused && cause == Cause::Unasked) {
            return None;
        }
        let withdrawn = match cause {
            Cause::Asked => consent.work.child_token(),
            Cause::Unasked => consent.unasked.child_token(),
        };
        let ended = withdrawn.child_token();
        let (what, changed) = (Mutex::new(what), self.changed.clone());
        let job = Arc::new(Job { kind, what, is_once, withdrawn, ended, changed });
        consent.jobs.retain(|job| job.strong_count() > 0);
        consent.jobs.push(Arc::downgrade(&job));
        Some(Permit { job })
    }

    fn withdraw(&mut self, id: WorkspaceId) {
        if let Some(consent) = self.workspaces.get_mut(&id) {
            self.last_epoch += 1;
            consent.epoch = self.last_epoch;
            consent.withdraw(&self.session);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.session.cancel();
    }
}
