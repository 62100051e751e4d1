use super::*;
use crate::batch::SweepEffort;

const A: WorkspaceId = WorkspaceId(0);
const B: WorkspaceId = WorkspaceId(1);

/// A scheduler with a simulated clock.
struct Harness {
    scheduler: Scheduler,
    now: Instant,
    /// Workspaces without consent.
    refused: Vec<WorkspaceId>,
    skipped: Vec<Work>,
    checks: usize,
}

impl Harness {
    fn new() -> Harness {
        let mut scheduler = Scheduler::default();
        scheduler.set_budget(Duration::from_secs(10));
        Harness {
            scheduler,
            now: Instant::now(),
            refused: Vec::new(),
            skipped: Vec::new(),
            checks: 0,
        }
    }

    fn want(&mut self, owner: WorkspaceId, work: Work) -> bool {
        self.scheduler.enqueue(owner, work)
    }

    /// Carries out decisions until there is nothing to do. Returns the job that was started.
    fn started(&mut self) -> Option<Job> {
        let mut started = None;
        for _ in 0..100 {
            let refused = self.refused.clone();
            let permit =
                |owner: WorkspaceId, _: &Work| (!refused.contains(&owner)).then(Permit::for_test);
            match self.scheduler.next(self.now, permit) {
                Next::Nothing => return started,
                Next::Start(job) => {
                    assert!(started.is_none(), "two jobs at once");
                    started = Some(job);
                }
                Next::Skip(_, work) => self.skipped.push(work),
                Next::CheckMachine(_) => {
                    self.checks += 1;
                    return started;
                }
            }
        }
        panic!("the scheduler does not come to rest");
    }

    /// Like `started`, on an idle machine.
    fn started_when_free(&mut self) -> Option<Job> {
        let checks = self.checks;
        let started = self.started();
        if self.checks == checks {
            return started;
        }
        self.scheduler.machine_checked(None);
        self.started()
    }

    #[track_caller]
    fn expect(&mut self, work: Work) -> Job {
        let job = self.started_when_free().expect("a job");
        assert_eq!(job.work, work);
        job
    }

    fn end(&mut self, job: &Job) {
        assert!(self.scheduler.finish_job(job.id, self.now).is_some());
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn saved(file: &str) -> Work {
    Work::Run(Reason::Saved(file.into()))
}

fn requested() -> Work {
    Work::Run(Reason::Requested(None))
}

const SWEEP: Work = Work::BatchSizes(SweepEffort::ShortRuns, 7);

#[test]
fn fifty_saves_cause_two_runs() {
    let mut harness = Harness::new();
    let mut started = Vec::new();
    for save in 0..50 {
        harness.want(A, saved(&format!("{save}.py")));
        started.extend(harness.started());
    }
    let [first] = &started[..] else { panic!("{started:?}") };
    assert!(!first.is_stopped(), "a save does not stop the run of an earlier one");
    harness.end(first);
    let second = harness.expect(saved("49.py"));
    harness.end(&second);
    assert!(harness.started().is_none());
}

#[test]
fn workspaces_take_turns() {
    let mut harness = Harness::new();
    for owner in [A, B, A] {
        harness.want(owner, saved("x.py"));
    }
    let mut order = Vec::new();
    while let Some(job) = harness.started() {
        order.push(job.owner);
        harness.end(&job);
    }
    assert_eq!(order, [A, B]);
}

#[test]
fn stopping_drops_queued_work_and_the_job_keeps_the_machine_until_it_ends() {
    let mut harness = Harness::new();
    assert!(!harness.scheduler.stop_all_of(A));
    harness.want(A, saved("a.py"));
    let job = harness.expect(saved("a.py"));
    harness.want(A, saved("b.py"));
    assert!(harness.scheduler.stop_all_of(A));
    assert!(job.is_stopped());
    harness.want(B, saved("c.py"));
    assert!(harness.started().is_none(), "its processes may still compute");
    harness.end(&job);
    harness.expect(saved("c.py"));
}

#[test]
fn a_save_does_not_replace_a_requested_run() {
    let mut harness = Harness::new();
    harness.want(A, requested());
    assert!(!harness.want(A, saved("a.py")));
    harness.expect(requested());
}

#[test]
fn work_without_consent_is_skipped() {
    let mut harness = Harness::new();
    harness.refused = vec![A];
    harness.want(A, saved("a.py"));
    harness.want(B, saved("b.py"));
    let job = harness.expect(saved("b.py"));
    assert_eq!(harness.skipped, [saved("a.py")]);
    harness.end(&job);
    // Findings run no code of the workspace.
    harness.want(A, Work::Findings(1));
    harness.expect(Work::Findings(1));
}

#[test]
fn the_end_of_an_earlier_job_is_ignored() {
    let mut harness = Harness::new();
    harness.want(A, saved("a.py"));
    let job = harness.expect(saved("a.py"));
    harness.end(&job);
    harness.want(A, saved("b.py"));
    harness.expect(saved("b.py"));
    assert!(harness.scheduler.finish_job(job.id, harness.now).is_none());
    assert!(harness.scheduler.running().is_some());
}

#[test]
fn a_run_stops_everything_else_and_nothing_else_starts_before_its_end() {
    for work in [SWEEP, Work::Probes(1), Work::Findings(1), Work::WhatIfs(1), Work::Estimate(1)] {
        let mut harness = Harness::new();
        harness.want(A, work.clone());
        let job = harness.expect(work.clone());
        harness.want(B, saved("b.py"));
        assert!(harness.started().is_none() && job.is_stopped(), "{work:?}");
        assert!(!harness.want(A, work.clone()), "{work:?} was accepted before the run");
        harness.end(&job);
        let run = harness.expect(saved("b.py"));
        assert!(!harness.want(A, work.clone()), "{work:?} was accepted during the run");
        harness.end(&run);
        assert!(harness.want(A, work));
    }
}

#[test]
fn measuring_the_gpu_starts_again_after_a_run() {
    for cause in [Cause::User, Cause::Automatic] {
        let mut harness = Harness::new();
        harness.want(A, Work::MeasureGpu(cause));
        let job = harness.expect(Work::MeasureGpu(cause));
        harness.want(A, saved("a.py"));
        assert!(harness.started().is_none() && job.is_stopped());
        harness.end(&job);
        let run = harness.expect(saved("a.py"));
        harness.end(&run);
        harness.expect(Work::MeasureGpu(cause));
    }
}

#[test]
fn work_the_user_waits_for_comes_first() {
    let mut harness = Harness::new();
    let order = [
        Work::BatchSizes(SweepEffort::Runs, 1),
        Work::Estimate(1),
        Work::Findings(1),
        Work::MeasureGpu(Cause::Automatic),
    ];
    harness.want(B, SWEEP);
    order.iter().rev().for_each(|work| assert!(harness.want(A, work.clone())));
    for work in order.iter().chain([&SWEEP]) {
        let job = harness.expect(work.clone());
        harness.end(&job);
    }
}

#[test]
fn a_key_press_stops_background_work() {
    for (work, is_stopped) in [
        (SWEEP, true),
        (Work::Probes(1), true),
        (Work::BatchSizes(SweepEffort::Runs, 1), true),
        (Work::WhatIfs(1), false),
        (saved("a.py"), false),
        (requested(), false),
    ] {
        let mut harness = Harness::new();
        harness.want(A, work.clone());
        let job = harness.expect(work.clone());
        harness.scheduler.edited(Some(B));
        assert_eq!(job.is_stopped(), is_stopped, "{work:?}");
        // It does not start from the queue, either.
        let mut harness = Harness::new();
        harness.want(A, work.clone());
        harness.scheduler.edited(None);
        assert_eq!(harness.started_when_free().is_none(), is_stopped, "{work:?}");
        assert_eq!(harness.skipped.len(), usize::from(is_stopped), "{work:?}");
    }
}

#[test]
fn a_key_press_stops_only_the_estimate_of_its_workspace() {
    let mut harness = Harness::new();
    harness.want(A, Work::Estimate(1));
    let job = harness.expect(Work::Estimate(1));
    harness.scheduler.edited(Some(B));
    assert!(!job.is_stopped());
    harness.scheduler.edited(Some(A));
    assert!(job.is_stopped());
}

#[test]
fn a_newer_text_replaces_the_estimate_of_an_older_one() {
    let mut harness = Harness::new();
    harness.want(A, Work::Estimate(1));
    let first = harness.expect(Work::Estimate(1));
    assert!(!harness.want(A, Work::Estimate(1)), "the same text");
    harness.want(A, Work::Estimate(2));
    harness.want(A, Work::Estimate(3));
    assert!(first.is_stopped());
    harness.end(&first);
    let second = harness.expect(Work::Estimate(3));
    harness.end(&second);
    assert!(harness.started().is_none());
}

#[test]
fn known_results_are_not_computed_again() {
    let mut harness = Harness::new();
    for work in [Work::Estimate(1), SWEEP] {
        harness.want(A, work.clone());
        let job = harness.expect(work.clone());
        harness.end(&job);
        // It was stopped, so there is no result.
        assert!(harness.want(A, work.clone()));
        let job = harness.expect(work.clone());
        harness.end(&job);
        harness.scheduler.remember(&job);
        assert!(!harness.want(A, work.clone()), "{work:?}");
        assert!(harness.want(B, work.clone()), "another workspace");
        harness.scheduler.forget_result(A, work.slot());
        assert!(harness.want(A, work.clone()), "{work:?}");
        harness.scheduler.forget(A);
        harness.scheduler.forget(B);
    }
}

#[test]
fn runs_of_other_batch_sizes_replace_estimates() {
    let mut harness = Harness::new();
    let work = |effort, key| Work::BatchSizes(effort, key);
    harness.want(A, work(SweepEffort::ShortRuns, 1));
    let job = harness.expect(work(SweepEffort::ShortRuns, 1));
    harness.end(&job);
    harness.scheduler.remember(&job);
    assert!(!harness.want(A, work(SweepEffort::Estimates, 1)));
    assert!(harness.want(A, work(SweepEffort::Estimates, 2)), "another program");
    assert!(harness.want(A, work(SweepEffort::Runs, 1)), "a request");
}

#[test]
fn requests_during_a_run_wait_for_its_end() {
    let mut harness = Harness::new();
    harness.want(A, saved("train.py"));
    let running = harness.expect(saved("train.py"));
    assert!(!harness.want(A, Work::BatchSizes(SweepEffort::Estimates, 1)));
    assert!(harness.want(A, Work::BatchSizes(SweepEffort::Runs, 1)));
    assert!(harness.started_when_free().is_none());
    harness.end(&running);
    harness.expect(Work::BatchSizes(SweepEffort::Runs, 1));
}

#[test]
fn background_work_is_limited_by_its_budget() {
    let mut harness = Harness::new();
    harness.want(A, Work::Findings(1));
    let job = harness.expect(Work::Findings(1));
    assert_eq!(job.limit, None);
    harness.pass(4);
    harness.end(&job);
    harness.want(A, Work::Probes(1));
    let job = harness.expect(Work::Probes(1));
    assert_eq!(job.limit, Some(Duration::from_secs(6)));
    harness.pass(7);
    harness.end(&job);
    harness.want(A, SWEEP);
    assert!(harness.started_when_free().is_none());
    assert_eq!(harness.skipped, [SWEEP]);
    // Other workspaces have their own budgets, and requests have no limit.
    harness.want(B, SWEEP);
    let job = harness.expect(SWEEP);
    assert_eq!(job.limit, Some(Duration::from_secs(10)));
    harness.end(&job);
    harness.want(A, Work::BatchSizes(SweepEffort::Runs, 1));
    let job = harness.expect(Work::BatchSizes(SweepEffort::Runs, 1));
    assert_eq!(job.limit, None);
    harness.end(&job);
    // The next measurement starts the budget again.
    harness.scheduler.measured(A);
    harness.want(A, SWEEP);
    assert_eq!(harness.expect(SWEEP).limit, Some(Duration::from_secs(10)));
}

#[test]
fn without_a_budget_only_the_recording_is_analyzed() {
    let mut harness = Harness::new();
    harness.scheduler.set_budget(Duration::ZERO);
    harness.want(A, Work::Probes(1));
    harness.want(B, SWEEP);
    assert!(harness.started_when_free().is_none());
    assert_eq!(harness.skipped.len(), 2);
    harness.want(A, Work::WhatIfs(1));
    harness.expect(Work::WhatIfs(1));
}

#[test]
fn on_a_busy_machine_probes_are_skipped_and_batch_sizes_wait() {
    let mut harness = Harness::new();
    harness.want(A, SWEEP);
    harness.want(A, Work::Probes(1));
    assert!(harness.started().is_none());
    assert_eq!(harness.checks, 1);
    harness.scheduler.machine_checked(Some(BusyReason::Cpu));
    assert!(harness.started().is_none());
    assert_eq!(harness.skipped, [Work::Probes(1)]);
    assert_eq!(harness.scheduler.waits_for(A), Some(BusyReason::Cpu));
    assert_eq!(harness.scheduler.waits_for(B), None);
    // The machine is not checked again before the check is outdated.
    assert_eq!(harness.checks, 1);
    harness.scheduler.machine_check_outdated();
    harness.expect(SWEEP);
    assert_eq!(harness.checks, 2);
    assert_eq!(harness.scheduler.waits_for(A), None);
}

#[test]
fn work_the_user_waits_for_starts_on_a_busy_machine() {
    for work in [saved("a.py"), requested(), Work::Estimate(1), Work::Findings(1), Work::WhatIfs(1)]
    {
        let mut harness = Harness::new();
        harness.want(B, SWEEP);
        assert!(harness.started().is_none());
        // During the check, and after it.
        if matches!(work, Work::Run(_)) {
            harness.want(A, work.clone());
            let job = harness.started().expect("it does not wait for the check");
            assert_eq!(job.work, work);
            harness.end(&job);
        }
        harness.scheduler.machine_checked(Some(BusyReason::Gpu));
        harness.want(A, work.clone());
        assert_eq!(harness.started().expect("it starts").work, work);
    }
}

#[test]
fn a_free_machine_is_checked_before_each_start() {
    let mut harness = Harness::new();
    for seen in 1..4 {
        harness.want(A, SWEEP);
        let job = harness.expect(SWEEP);
        assert_eq!(harness.checks, seen);
        harness.end(&job);
    }
    // A check during a run is outdated when the run has ended.
    harness.want(A, SWEEP);
    assert!(harness.started().is_none());
    harness.want(B, saved("b.py"));
    let run = harness.expect(saved("b.py"));
    harness.scheduler.machine_checked(None);
    harness.end(&run);
    harness.want(A, SWEEP);
    assert!(harness.started().is_none());
    assert_eq!(harness.checks, 5);
}

#[test]
fn a_newer_measurement_replaces_work_on_an_older_one() {
    let mut harness = Harness::new();
    harness.want(A, Work::WhatIfs(1));
    let job = harness.expect(Work::WhatIfs(1));
    assert!(harness.want(A, Work::Findings(2)));
    assert!(job.is_stopped());
    harness.end(&job);
    harness.expect(Work::Findings(2));
}

#[test]
fn a_pause_does_not_stop_requested_work() {
    let mut harness = Harness::new();
    harness.want(A, requested());
    let job = harness.expect(requested());
    harness.want(A, saved("a.py"));
    harness.want(B, saved("b.py"));
    harness.scheduler.pause(A);
    assert!(!job.is_stopped());
    harness.end(&job);
    let job = harness.expect(saved("b.py"));
    harness.scheduler.pause(B);
    assert!(job.is_stopped());
}

#[test]
fn cancelling_a_progress_stops_its_job() {
    let mut harness = Harness::new();
    harness.want(A, saved("a.py"));
    let job = harness.expect(saved("a.py"));
    harness.scheduler.stop_progress("ridgeline/run/77");
    assert!(!job.is_stopped());
    harness.scheduler.stop_progress(&job.progress_token());
    assert!(job.is_stopped());
}

#[test]
fn a_removed_workspace_leaves_nothing_behind() {
    let mut harness = Harness::new();
    harness.want(A, Work::Estimate(1));
    let job = harness.expect(Work::Estimate(1));
    harness.want(A, Work::Findings(1));
    harness.scheduler.remember(&job);
    harness.scheduler.forget(A);
    assert!(job.is_stopped());
    harness.end(&job);
    assert!(harness.started().is_none());
    assert!(harness.skipped.is_empty());
    assert!(harness.want(A, Work::Estimate(1)));
}
