//! The gate that every start of workspace code passes through.
//!
//! Everything that starts code of a workspace (a run, its imports before a run, an estimate,
//! another batch size, single operators in its Python, a GPU measured with its libraries) needs a
//! [`Permit`], and only the [`Gate`] gives them. Withdrawing consent also withdraws the permits:
//! the job sees that and ends, or is dropped if it has not ended after [`WITHDRAWAL_GRACE_PERIOD`].

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::scheduler::WorkspaceId;
use crate::store::StoreError;
use crate::trust::{Answer, Decision, Trust};

/// The time a job has to end after its permit was withdrawn, before it is dropped. Together with
/// the end of its processes, it takes less than a second.
pub(crate) const WITHDRAWAL_GRACE_PERIOD: Duration = Duration::from_millis(700);

/// Who requested a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The user, explicitly: with a command, a button, or an answer to a question.
    User,
    /// A save, a change on disk, or the server itself. A pause ends such jobs.
    Automatic,
}

/// The kind of a job, for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run in the queue, which has its own status and progress.
    Run,
    /// Imports before a run, which have their own status.
    Preparing,
    /// Everything else.
    Background,
}

/// The permission to run code of one workspace, until it is withdrawn. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    job: Arc<Job>,
}

#[derive(Debug)]
struct Job {
    kind: Kind,
    description: Mutex<String>,
    is_once: bool,
    /// Cancelled when the consent or the request for the job is withdrawn.
    withdrawn: CancellationToken,
    /// Cancelled when the job is to end: after a newer save, a key press, or a run that comes
    /// first. A child of `withdrawn`.
    ended: CancellationToken,
    changed: watch::Sender<u64>,
}

impl Job {
    fn description(&self) -> String {
        self.description.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

impl Permit {
    /// Returns whether the job may continue.
    pub(crate) fn is_valid(&self) -> bool {
        !self.job.ended.is_cancelled()
    }

    /// Returns whether consent was withdrawn, as opposed to the job making way for something else.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.job.withdrawn.is_cancelled()
    }

    /// Returns whether it was given for this one run only.
    pub(crate) fn is_once(&self) -> bool {
        self.job.is_once
    }

    /// Sets the description of what the job is doing, for the status.
    pub(crate) fn set_description(&self, what: String) {
        *self.job.description.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.job.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns the token that is cancelled when the job is to end.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.job.ended
    }

    /// Waits for `work`, which ends by itself soon after the permit does. If it does not, it is
    /// dropped [`WITHDRAWAL_GRACE_PERIOD`] after consent was withdrawn, and there is no result.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let overstays = async {
            self.job.withdrawn.cancelled().await;
            tokio::time::sleep(WITHDRAWAL_GRACE_PERIOD).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = overstays => None,
        }
    }

    /// Creates a permit without a gate.
    #[cfg(test)]
    pub(crate) fn for_test() -> Permit {
        let withdrawn = CancellationToken::new();
        let ended = withdrawn.child_token();
        let (changed, _) = watch::channel(0);
        let (kind, what, is_once) = (Kind::Run, Mutex::default(), false);
        Permit {
            job: Arc::new(Job { kind, description: what, is_once, withdrawn, ended, changed }),
        }
    }
}

/// A question to the user that may lead to a run. It is only valid under the consent it was asked
/// under: once that is withdrawn, an answer is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    epoch: u64,
    round: u64,
    /// Whether it was asked within a run that was allowed once. The answer belongs to that run.
    is_within_once: bool,
}

#[derive(Debug)]
struct Consent {
    /// Its folder, which decisions are about.
    root: PathBuf,
    /// Changes each time consent is withdrawn. Numbers are never reused.
    epoch: u64,
    /// Changes each time the trust question is answered.
    round: u64,
    is_paused: bool,
    /// Whether one run may start.
    once: bool,
    /// Parent of the tokens of all its jobs.
    work: CancellationToken,
    /// Parent of the tokens of jobs that the user did not request; a child of `work`.
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

/// Gives permits, and withdraws them.
#[derive(Debug)]
pub(crate) struct Gate {
    trust: Trust,
    session: CancellationToken,
    workspaces: HashMap<WorkspaceId, Consent>,
    last_epoch: u64,
    changed: watch::Sender<u64>,
}

impl Gate {
    /// Creates a gate that permits only what `trust` allows.
    pub(crate) fn new(trust: Trust) -> Gate {
        let (changed, _) = watch::channel(0);
        let session = CancellationToken::new();
        Gate { trust, session, workspaces: HashMap::new(), last_epoch: 0, changed }
    }

    /// Replaces the decisions, once the client has sent its capabilities.
    pub(crate) fn set_trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    /// Notifies each time a job ends or moves on to something else.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns what may run in a workspace. If another folder has taken its place, nothing may, and
    /// its jobs end.
    pub(crate) fn decision(&mut self, id: WorkspaceId) -> Decision {
        let Some(consent) = self.workspaces.get(&id) else { return Decision::Unknown };
        let (decision, is_replaced) = self.trust.decision(&consent.root);
        if is_replaced {
            self.withdraw(id);
        }
        decision
    }

    /// Adds a workspace. Before that, nothing of it is permitted.
    pub(crate) fn add(&mut self, id: WorkspaceId, root: &Path) {
        if !self.workspaces.contains_key(&id) {
            self.last_epoch += 1;
            let consent = Consent::new(root, self.last_epoch, &self.session);
            self.workspaces.insert(id, consent);
        }
    }

    /// Removes a workspace and withdraws its permits.
    pub(crate) fn remove(&mut self, id: WorkspaceId) {
        if let Some(mut consent) = self.workspaces.remove(&id) {
            consent.withdraw(&self.session);
        }
    }

    /// Returns a question that is asked now. `within` is the permit of the run that it came up in.
    pub(crate) fn question(&self, id: WorkspaceId, within: Option<&Permit>) -> Question {
        let consent = self.workspaces.get(&id);
        let (epoch, round) = consent.map_or((0, 0), |consent| (consent.epoch, consent.round));
        let is_within_once = within.is_some_and(Permit::is_once);
        Question { epoch, round, is_within_once }
    }

    /// Returns whether consent was not withdrawn since the question was asked.
    pub(crate) fn is_current(&mut self, id: WorkspaceId, question: Question) -> bool {
        // Notices if another folder has taken its place.
        self.decision(id);
        self.workspaces.get(&id).is_some_and(|consent| consent.epoch == question.epoch)
    }

    /// Handles the answer to the trust question. Returns false if the question is outdated, and
    /// grants nothing then. A refusal is never too late.
    ///
    /// # Errors
    /// If the decision cannot be written. It still applies to this session.
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

    /// Refuses a folder that may not be open.
    ///
    /// # Errors
    /// Like [`Gate::answer`].
    pub(crate) fn refuse(&mut self, root: &Path) -> Result<(), StoreError> {
        self.trust.decide(root, false)
    }

    /// Lets the run continue that the question was asked within. Returns whether it may.
    pub(crate) fn continue_run(&mut self, id: WorkspaceId, question: Question) -> bool {
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

    /// Allows the workspace by command.
    ///
    /// # Errors
    /// Like [`Gate::answer`].
    pub(crate) fn allow(&mut self, id: WorkspaceId) -> Result<(), StoreError> {
        let Some(consent) = self.workspaces.get_mut(&id) else { return Ok(()) };
        consent.round += 1;
        self.trust.decide(&consent.root, true)
    }

    /// Withdraws every decision.
    ///
    /// # Errors
    /// If the file with the decision cannot be removed. Nothing runs in this session anyway.
    pub(crate) fn revoke(&mut self, id: WorkspaceId) -> Result<(), StoreError> {
        self.withdraw(id);
        let Some(consent) = self.workspaces.get(&id) else { return Ok(()) };
        self.trust.revoke(&consent.root)
    }

    /// Stops everything that runs or is about to. Returns whether there was anything. The decision
    /// stays: the next request gets a new permit.
    pub(crate) fn stop(&mut self, id: WorkspaceId) -> bool {
        let Some(consent) = self.workspaces.get_mut(&id) else { return false };
        let was_busy = consent.jobs().any(|job| !job.ended.is_cancelled());
        consent.withdraw(&self.session);
        was_busy
    }

    /// Stops jobs that the user did not request, and permits no new ones until [`Gate::resume`].
    pub(crate) fn pause(&mut self, id: WorkspaceId) {
        if let Some(consent) = self.workspaces.get_mut(&id) {
            consent.is_paused = true;
            consent.unasked.cancel();
            consent.unasked = consent.work.child_token();
        }
    }

    /// Permits jobs that the user did not request again.
    pub(crate) fn resume(&mut self, id: WorkspaceId) {
        if let Some(consent) = self.workspaces.get_mut(&id) {
            consent.is_paused = false;
        }
    }

    pub(crate) fn is_paused(&self, id: WorkspaceId) -> bool {
        self.workspaces.get(&id).is_some_and(|consent| consent.is_paused)
    }

    /// Ends the session: stops everything, and permits nothing any more.
    pub(crate) fn close(&mut self) {
        self.session.cancel();
    }

    /// Returns a permit for a run in the queue. It uses up an answer "run once".
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
        // A user who answers "run once" requests that run.
        let cause = if is_once { Cause::User } else { cause };
        self.grant(id, cause, Kind::Run, what, is_once)
    }

    /// Returns a permit for anything else, or `None` unless the user allowed every run.
    pub(crate) fn permit(
        &mut self,
        id: WorkspaceId,
        cause: Cause,
        kind: Kind,
        what: impl Into<String>,
    ) -> Option<Permit> {
        let is_allowed = self.decision(id) == Decision::Allowed;
        is_allowed.then(|| self.grant(id, cause, kind, what.into(), false)).flatten()
    }

    /// Returns what a background job of the workspace is doing, for the status.
    pub(crate) fn in_background(&self, id: WorkspaceId) -> Option<String> {
        let mut jobs = self.workspaces.get(&id)?.jobs();
        jobs.find(|job| job.kind == Kind::Background).map(|job| job.description())
    }

    /// Returns whether anything of a workspace runs or is about to.
    pub(crate) fn is_busy(&self, id: WorkspaceId) -> bool {
        self.workspaces.get(&id).is_some_and(|consent| consent.jobs().next().is_some())
    }

    fn grant(
        &mut self,
        id: WorkspaceId,
        cause: Cause,
        kind: Kind,
        what: String,
        is_once: bool,
    ) -> Option<Permit> {
        let consent = self.workspaces.get_mut(&id)?;
        if self.session.is_cancelled() || (consent.is_paused && cause == Cause::Automatic) {
            return None;
        }
        let withdrawn = match cause {
            Cause::User => consent.work.child_token(),
            Cause::Automatic => consent.unasked.child_token(),
        };
        let ended = withdrawn.child_token();
        let (what, changed) = (Mutex::new(what), self.changed.clone());
        let job = Arc::new(Job { kind, description: what, is_once, withdrawn, ended, changed });
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
