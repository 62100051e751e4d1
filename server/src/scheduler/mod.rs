//! Decides which work runs, and when. There are five kinds: runs, estimates of unsaved text, work
//! on a measurement (findings, probes, what-ifs), other batch sizes, and measuring the GPU. Two at
//! once would slow each other down and distort timings, so one job runs at a time.
//!
//! - [`Scheduler::enqueue`] queues work. Each workspace has one place for each [`Slot`]: newer work
//!   replaces older work there, except that a save does not replace what the user requested. Work
//!   whose result is known (same key) is not repeated.
//! - [`Scheduler::next`] returns what to do, and is called after each event. A stopped job keeps
//!   the machine until [`Scheduler::finish_job`] is called, because its processes may still be
//!   computing.
//! - [`Work::rules`] is the single table of what may run while the user types, saves, or uses the
//!   machine for something else.
//! - Background work has a time budget after each measurement.
//!
//! This is a data structure without a clock or processes. The caller passes in times, and `jobs.rs`
//! carries out the decisions.

mod work;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::consent::{Cause, Permit};
use crate::machine_load::BusyReason;
pub(crate) use work::{Budget, OnBusyMachine, Reason, Slot, Work};

/// Identifies a workspace of the session. Numbers are never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
pub(crate) struct WorkspaceId(pub u32);

/// Identifies a job. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobId(u64);

/// Work that is running.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub id: JobId,
    pub owner: WorkspaceId,
    pub work: Work,
    /// The permit it runs with; `None` if it runs no code of the workspace.
    pub permit: Option<Permit>,
    /// Cancelled when the job is to end.
    pub token: CancellationToken,
    /// The time limit.
    pub limit: Option<Duration>,
    started: Instant,
}

impl Job {
    /// Returns whether it was asked to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns the token of its progress in the client.
    pub(crate) fn progress_token(&self) -> String {
        let kind = if matches!(self.work, Work::Run(_)) { "run" } else { "batch" };
        format!("ridgeline/{kind}/{}", self.id.0)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Nothing, until the next event.
    Nothing,
    /// Start this job.
    Start(Job),
    /// This work does not start. Work that depends on it may continue without it.
    Skip(WorkspaceId, Work),
    /// Check for this workspace whether something else needs the machine, and report it with
    /// [`Scheduler::machine_checked`].
    CheckMachine(WorkspaceId),
}

/// What is known about other programs on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Machine {
    #[default]
    Unknown,
    Checking,
    /// Valid for one start.
    Free,
    Needed(BusyReason),
}

/// Decides which work runs, and when. Its queues are bounded by the number of workspaces.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    running: Option<Job>,
    waiting: Vec<(WorkspaceId, Work)>,
    /// Work that left the queue without being started. [`Scheduler::next`] reports it.
    skipped: Vec<(WorkspaceId, Work)>,
    /// The work that the last known result is from.
    known: HashMap<(WorkspaceId, Slot), Work>,
    /// Background time used since the last measurement.
    spent: HashMap<WorkspaceId, Duration>,
    budget: Duration,
    machine: Machine,
    last: u64,
}

impl Scheduler {
    /// Sets the background time after a measurement.
    pub(crate) fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    /// Queues work. Returns false if it is not accepted, because its result is known, it is running
    /// already, or a run comes first.
    pub(crate) fn enqueue(&mut self, owner: WorkspaceId, work: Work) -> bool {
        let slot = work.slot();
        let is_requested = work.cause() == Cause::User;
        let known = self.known.get(&(owner, slot));
        let is_known = known.is_some_and(|known| known.answers(&work));
        // The end of a run decides what follows. What the user requests waits for it.
        let follows_run = !matches!(slot, Slot::Run | Slot::MeasureGpu) && self.has_run();
        if !is_requested && (is_known || follows_run) {
            return false;
        }
        if let Some(running) = self.running.as_ref().filter(|job| is_same(job, owner, slot)) {
            if running.work == work && slot != Slot::Run && !running.is_stopped() {
                return false;
            }
            if slot != Slot::Run {
                running.token.cancel();
            }
        }
        let mut waiting = self.waiting.iter_mut();
        match waiting.find(|(of, waits)| *of == owner && waits.slot() == slot) {
            Some((_, before)) if before.cause() == Cause::User && !is_requested => return false,
            Some((_, before)) => *before = work,
            None => self.waiting.push((owner, work)),
        }
        true
    }

    /// Returns what to do now. `permit` gives the permit to run code of a workspace.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        mut permit: impl FnMut(WorkspaceId, &Work) -> Option<Permit>,
    ) -> Next {
        loop {
            if let Some((owner, work)) = self.skipped.pop() {
                return Next::Skip(owner, work);
            }
            if self.waiting.iter().any(|(_, work)| work.slot() == Slot::Run) && self.make_way() {
                continue;
            }
            if self.running.is_some() {
                return Next::Nothing;
            }
            let Some((at, (owner, work))) = self.first() else { return Next::Nothing };
            let rules = work.rules();
            if rules.on_busy_machine != OnBusyMachine::Start && self.machine == Machine::Unknown {
                self.machine = Machine::Checking;
                return Next::CheckMachine(owner);
            }
            self.waiting.remove(at);
            let limit = (rules.budget == Budget::Limited).then(|| self.remaining_budget(owner));
            let is_skipped = matches!(self.machine, Machine::Needed(_))
                && rules.on_busy_machine == OnBusyMachine::Skip;
            if is_skipped || limit.is_some_and(|limit| limit.is_zero()) {
                return Next::Skip(owner, work);
            }
            let permit = match work.needs_permit() {
                None => None,
                Some(_) => match permit(owner, &work) {
                    None => return Next::Skip(owner, work),
                    permit => permit,
                },
            };
            if self.machine == Machine::Free {
                self.machine = Machine::Unknown;
            }
            self.last += 1;
            let token = permit.as_ref().map(|it| it.token().clone()).unwrap_or_default();
            let id = JobId(self.last);
            let job = Job { id, owner, work, permit, token, limit, started: now };
            self.running = Some(job.clone());
            return Next::Start(job);
        }
    }

    /// Returns the first work that may start, given what is known about the machine, and its place
    /// in the queue.
    fn first(&self) -> Option<(usize, (WorkspaceId, Work))> {
        let may_start = |work: &Work| match (work.rules().on_busy_machine, self.machine) {
            (OnBusyMachine::Start, _) | (_, Machine::Unknown | Machine::Free) => true,
            (OnBusyMachine::Skip, Machine::Needed(_)) => true,
            (OnBusyMachine::Wait, Machine::Needed(_)) | (_, Machine::Checking) => false,
        };
        let waiting = self.waiting.iter().enumerate().filter(|(_, (_, work))| may_start(work));
        let first = waiting.min_by_key(|(at, (_, work))| (work.rules().rank, *at));
        first.map(|(at, waiting)| (at, waiting.clone()))
    }

    /// Stops the current job and drops queued work, except runs. Measuring the GPU is queued again.
    /// Returns whether there was anything.
    fn make_way(&mut self) -> bool {
        let running = self.running.as_ref();
        let running = running.filter(|job| job.work.slot() != Slot::Run && !job.is_stopped());
        let stopped = running.map(|job| {
            job.token.cancel();
            (job.owner, job.work.clone())
        });
        let again = stopped.clone().filter(|(_, work)| work.slot() == Slot::MeasureGpu);
        self.waiting.extend(again);
        let before = self.waiting.len();
        self.drop_waiting(|_, work| !matches!(work.slot(), Slot::Run | Slot::MeasureGpu));
        stopped.is_some() || self.waiting.len() < before
    }

    fn drop_waiting(&mut self, is_dropped: impl Fn(WorkspaceId, &Work) -> bool) -> bool {
        let dropped = self.waiting.extract_if(.., |(owner, work)| is_dropped(*owner, work));
        let before = self.skipped.len();
        self.skipped.extend(dropped);
        self.skipped.len() > before
    }

    fn remaining_budget(&self, owner: WorkspaceId) -> Duration {
        self.budget.saturating_sub(self.spent.get(&owner).copied().unwrap_or_default())
    }

    /// Returns whether a run is running or queued.
    pub(crate) fn has_run(&self) -> bool {
        let running = self.running.as_ref().map(|job| &job.work);
        let mut all = running.into_iter().chain(self.waiting.iter().map(|(_, work)| work));
        all.any(|work| work.slot() == Slot::Run)
    }

    /// Returns the current job.
    pub(crate) fn running(&self) -> Option<&Job> {
        self.running.as_ref()
    }

    /// Returns the current run, with its reason.
    pub(crate) fn run(&self) -> Option<(&Job, &Reason)> {
        let running = self.running.as_ref()?;
        match &running.work {
            Work::Run(reason) => Some((running, reason)),
            _ => None,
        }
    }

    /// Returns the reason of the current run, if it is of this workspace.
    pub(crate) fn run_of(&self, owner: WorkspaceId) -> Option<&Reason> {
        self.run().filter(|(job, _)| job.owner == owner).map(|(_, reason)| reason)
    }

    /// Returns whether work of a workspace is running or queued.
    pub(crate) fn has(&self, owner: WorkspaceId, slot: Slot) -> bool {
        self.running.as_ref().is_some_and(|job| is_same(job, owner, slot))
            || self.waiting.iter().any(|(of, work)| *of == owner && work.slot() == slot)
    }

    /// Returns whether work that runs code of the workspace is queued.
    pub(crate) fn is_waiting(&self, owner: WorkspaceId) -> bool {
        self.waiting.iter().any(|(of, work)| *of == owner && work.needs_permit().is_some())
    }

    /// Returns why work of a workspace waits for the machine.
    pub(crate) fn waits_for(&self, owner: WorkspaceId) -> Option<BusyReason> {
        let Machine::Needed(needed) = self.machine else { return None };
        let waits = |(of, work): &(WorkspaceId, Work)| {
            *of == owner && work.rules().on_busy_machine == OnBusyMachine::Wait
        };
        self.waiting.iter().any(waits).then_some(needed)
    }

    /// Stores whether something else needs the machine. The next check follows after
    /// [`Scheduler::machine_check_outdated`].
    pub(crate) fn machine_checked(&mut self, needed: Option<BusyReason>) {
        self.machine = match needed {
            // The check was before this job started.
            _ if self.running.is_some() => Machine::Unknown,
            None => Machine::Free,
            Some(needed) => Machine::Needed(needed),
        };
    }

    /// Marks the last check of the machine as outdated.
    pub(crate) fn machine_check_outdated(&mut self) {
        self.machine = Machine::Unknown;
    }

    /// Handles the end of a job. Returns `None` if it is not the current one.
    pub(crate) fn finish_job(&mut self, id: JobId, now: Instant) -> Option<Job> {
        let job = self.running.take_if(|running| running.id == id)?;
        if job.work.rules().budget != Budget::Free {
            *self.spent.entry(job.owner).or_default() += now.saturating_duration_since(job.started);
        }
        Some(job)
    }

    /// Stores that the result of a job is known, so that it is not repeated.
    pub(crate) fn remember(&mut self, job: &Job) {
        self.known.insert((job.owner, job.work.slot()), job.work.clone());
    }

    /// Forgets that a result is known.
    pub(crate) fn forget_result(&mut self, owner: WorkspaceId, slot: Slot) {
        self.known.remove(&(owner, slot));
    }

    /// Starts the background budget of a workspace again, because it was measured.
    pub(crate) fn measured(&mut self, owner: WorkspaceId) {
        self.spent.remove(&owner);
    }

    /// Stops work that yields to typing, and the estimate of the workspace `owner` that was edited.
    pub(crate) fn edited(&mut self, owner: Option<WorkspaceId>) {
        self.cancel(|of, work| {
            work.rules().yields_to_typing || (owner == Some(of) && work.slot() == Slot::Estimate)
        });
    }

    /// Stops one kind of work of a workspace.
    pub(crate) fn stop(&mut self, owner: WorkspaceId, slot: Slot) {
        self.cancel(|of, work| of == owner && work.slot() == slot);
    }

    /// Stops everything that runs code of a workspace. Returns whether there was anything.
    pub(crate) fn stop_all_of(&mut self, owner: WorkspaceId) -> bool {
        self.cancel(|of, work| of == owner && work.needs_permit().is_some())
    }

    /// Stops what runs code of a workspace without the user's request.
    pub(crate) fn pause(&mut self, owner: WorkspaceId) {
        self.cancel(|of, work| {
            of == owner && work.needs_permit().is_some() && work.cause() == Cause::Automatic
        });
    }

    /// Stops the job with this progress token.
    pub(crate) fn stop_progress(&mut self, token: &str) {
        if let Some(job) = self.running.as_ref().filter(|job| job.progress_token() == token) {
            job.token.cancel();
        }
    }

    /// Drops everything of a workspace that was removed.
    pub(crate) fn forget(&mut self, owner: WorkspaceId) {
        self.cancel(|of, _| of == owner);
        self.skipped.retain(|(of, _)| *of != owner);
        self.known.retain(|(of, _), _| *of != owner);
        self.spent.remove(&owner);
    }

    pub(crate) fn close(&mut self) {
        self.cancel(|_, _| true);
        self.skipped.clear();
    }

    fn cancel(&mut self, is_target: impl Fn(WorkspaceId, &Work) -> bool) -> bool {
        let running = self.running.as_ref().filter(|job| is_target(job.owner, &job.work));
        let was_running = running.is_some();
        if let Some(job) = running {
            job.token.cancel();
        }
        self.drop_waiting(is_target) || was_running
    }
}

fn is_same(job: &Job, owner: WorkspaceId, slot: Slot) -> bool {
    job.owner == owner && job.work.slot() == slot
}

#[cfg(test)]
mod tests;
