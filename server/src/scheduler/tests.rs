use super::*;
use crate::batch::Effort;

const A: WorkspaceId = WorkspaceId(0);
const B: WorkspaceId = WorkspaceId(1);

/// A scheduler with a clock that the test sets.
struct Bench {
    scheduler: Scheduler,
    now: Instant,
    /// Workspaces that may not run.
    refused: Vec<WorkspaceId>,
    skipped: Vec<Work>,
    looks: usize,
}

impl Bench {
    fn new() -> Bench {
        let mut scheduler = Scheduler::default();
        scheduler.set_budget(Duration::from_secs(10));
        Bench { scheduler, now: Instant::now(), refused: Vec::new(), skipped: Vec::new(), looks: 0 }
    }

    fn want(&mut self, owner: WorkspaceId, work: Work) -> bool {
        self.scheduler.want(owner, work)
    }

    /// Carries decisions out until there is nothing to do; gives what was started.
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
                Next::LookAtMachine(_) => {
                    self.looks += 1;
                    return started;
                }
            }
        }
        panic!("it never comes to an end");
    }

    /// The same on a machine that nothing else needs.
    fn started_when_free(&mut self) -> Option<Job> {
        let looks = self.looks;
        let started = self.started();
        if self.looks == looks {
            return started;
        }
        self.scheduler.machine_seen(None);
        self.started()
    }

    #[track_caller]
    fn expect(&mut self, work: Work) -> Job {
        let job = self.started_when_free().expect("a job");
        assert_eq!(job.work, work);
        job
    }

    fn end(&mut self, job: &Job) {
        assert!(self.scheduler.ended(job.id, self.now).is_some());
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn saved(file: &str) -> Work {
    Work::Run(Reason::Saved(file.into()))
}

fn asked() -> Work {
    Work::Run(Reason::Asked(None))
}

const SWEEP: Work = Work::BatchSizes(Effort::ShortRuns, 7);

#[test]
fn fifty_saves_are_two_runs() {
    let mut bench = Bench::new();
    let mut started = Vec::new();
    for save in 0..50 {
        bench.want(A, saved(&format!("{save}.py")));
        started.extend(bench.started());
    }
    let [first] = &started[..] else { panic!("{started:?}") };
    assert!(!first.is_stopped(), "a save does not stop the run of an earlier one");
    bench.end(first);
    let second = bench.expect(saved("49.py"));
    bench.end(&second);
    assert!(bench.started().is_none());
}

#[test]
fn workspaces_take_turns() {
    let mut bench = Bench::new();
    for owner in [A, B, A] {
        bench.want(owner, saved("x.py"));
    }
    let mut order = Vec::new();
    while let Some(job) = bench.started() {
        order.push(job.owner);
        bench.end(&job);
    }
    assert_eq!(order, [A, B]);
}

#[test]
fn stopping_forgets_what_waits_and_the_job_keeps_the_machine_until_it_ends() {
    let mut bench = Bench::new();
    assert!(!bench.scheduler.stop_all_of(A));
    bench.want(A, saved("a.py"));
    let job = bench.expect(saved("a.py"));
    bench.want(A, saved("b.py"));
    assert!(bench.scheduler.stop_all_of(A));
    assert!(job.is_stopped());
    bench.want(B, saved("c.py"));
    assert!(bench.started().is_none(), "its processes may still compute");
    bench.end(&job);
    bench.expect(saved("c.py"));
}

#[test]
fn a_save_does_not_replace_what_a_person_asked_for() {
    let mut bench = Bench::new();
    bench.want(A, asked());
    assert!(!bench.want(A, saved("a.py")));
    bench.expect(asked());
}

#[test]
fn work_without_consent_is_skipped() {
    let mut bench = Bench::new();
    bench.refused = vec![A];
    bench.want(A, saved("a.py"));
    bench.want(B, saved("b.py"));
    let job = bench.expect(saved("b.py"));
    assert_eq!(bench.skipped, [saved("a.py")]);
    bench.end(&job);
    // Findings run nothing of the workspace.
    bench.want(A, Work::Findings(1));
    bench.expect(Work::Findings(1));
}

#[test]
fn an_old_end_ends_nothing() {
    let mut bench = Bench::new();
    bench.want(A, saved("a.py"));
    let job = bench.expect(saved("a.py"));
    bench.end(&job);
    bench.want(A, saved("b.py"));
    bench.expect(saved("b.py"));
    assert!(bench.scheduler.ended(job.id, bench.now).is_none());
    assert!(bench.scheduler.running().is_some());
}

#[test]
fn a_run_stops_everything_else_and_nothing_else_begins_before_it_has_ended() {
    for work in [SWEEP, Work::Probes(1), Work::Findings(1), Work::WhatIfs(1), Work::Estimate(1)] {
        let mut bench = Bench::new();
        bench.want(A, work.clone());
        let job = bench.expect(work.clone());
        bench.want(B, saved("b.py"));
        assert!(bench.started().is_none() && job.is_stopped(), "{work:?}");
        assert!(!bench.want(A, work.clone()), "{work:?} begins before the run");
        bench.end(&job);
        let run = bench.expect(saved("b.py"));
        assert!(!bench.want(A, work.clone()), "{work:?} begins beside the run");
        bench.end(&run);
        assert!(bench.want(A, work));
    }
}

#[test]
fn measuring_the_gpu_begins_again_after_a_run() {
    for cause in [Cause::Asked, Cause::Unasked] {
        let mut bench = Bench::new();
        bench.want(A, Work::MeasureGpu(cause));
        let job = bench.expect(Work::MeasureGpu(cause));
        bench.want(A, saved("a.py"));
        assert!(bench.started().is_none() && job.is_stopped());
        bench.end(&job);
        let run = bench.expect(saved("a.py"));
        bench.end(&run);
        bench.expect(Work::MeasureGpu(cause));
    }
}

#[test]
fn what_a_person_waits_for_comes_first() {
    let mut bench = Bench::new();
    let order = [
        Work::BatchSizes(Effort::Runs, 1),
        Work::Estimate(1),
        Work::Findings(1),
        Work::MeasureGpu(Cause::Unasked),
    ];
    bench.want(B, SWEEP);
    order.iter().rev().for_each(|work| assert!(bench.want(A, work.clone())));
    for work in order.iter().chain([&SWEEP]) {
        let job = bench.expect(work.clone());
        bench.end(&job);
    }
}

#[test]
fn a_key_stops_what_nobody_asked_for() {
    for (work, is_stopped) in [
        (SWEEP, true),
        (Work::Probes(1), true),
        (Work::BatchSizes(Effort::Runs, 1), true),
        (Work::WhatIfs(1), false),
        (saved("a.py"), false),
        (asked(), false),
    ] {
        let mut bench = Bench::new();
        bench.want(A, work.clone());
        let job = bench.expect(work.clone());
        bench.scheduler.edited(Some(B));
        assert_eq!(job.is_stopped(), is_stopped, "{work:?}");
        // What waits is not begun either.
        let mut bench = Bench::new();
        bench.want(A, work.clone());
        bench.scheduler.edited(None);
        assert_eq!(bench.started_when_free().is_none(), is_stopped, "{work:?}");
        assert_eq!(bench.skipped.len(), usize::from(is_stopped), "{work:?}");
    }
}

#[test]
fn a_key_stops_the_estimate_of_its_own_workspace_only() {
    let mut bench = Bench::new();
    bench.want(A, Work::Estimate(1));
    let job = bench.expect(Work::Estimate(1));
    bench.scheduler.edited(Some(B));
    assert!(!job.is_stopped());
    bench.scheduler.edited(Some(A));
    assert!(job.is_stopped());
}

#[test]
fn a_newer_text_replaces_the_estimate_of_an_older_one() {
    let mut bench = Bench::new();
    bench.want(A, Work::Estimate(1));
    let first = bench.expect(Work::Estimate(1));
    assert!(!bench.want(A, Work::Estimate(1)), "the same text");
    bench.want(A, Work::Estimate(2));
    bench.want(A, Work::Estimate(3));
    assert!(first.is_stopped());
    bench.end(&first);
    let second = bench.expect(Work::Estimate(3));
    bench.end(&second);
    assert!(bench.started().is_none());
}

#[test]
fn what_is_known_is_not_repeated() {
    let mut bench = Bench::new();
    for work in [Work::Estimate(1), SWEEP] {
        bench.want(A, work.clone());
        let job = bench.expect(work.clone());
        bench.end(&job);
        // It was stopped, so that nothing is known.
        assert!(bench.want(A, work.clone()));
        let job = bench.expect(work.clone());
        bench.end(&job);
        bench.scheduler.remember(&job);
        assert!(!bench.want(A, work.clone()), "{work:?}");
        assert!(bench.want(B, work.clone()), "another workspace");
        bench.scheduler.forget_result(A, work.slot());
        assert!(bench.want(A, work.clone()), "{work:?}");
        bench.scheduler.forget(A);
        bench.scheduler.forget(B);
    }
}

#[test]
fn runs_of_other_batch_sizes_know_more_than_estimates() {
    let mut bench = Bench::new();
    let work = |effort, key| Work::BatchSizes(effort, key);
    bench.want(A, work(Effort::ShortRuns, 1));
    let job = bench.expect(work(Effort::ShortRuns, 1));
    bench.end(&job);
    bench.scheduler.remember(&job);
    assert!(!bench.want(A, work(Effort::Estimates, 1)));
    assert!(bench.want(A, work(Effort::Estimates, 2)), "another program");
    assert!(bench.want(A, work(Effort::Runs, 1)), "a person asks");
}

#[test]
fn what_a_person_asks_for_during_a_run_waits_for_its_end() {
    let mut bench = Bench::new();
    bench.want(A, saved("train.py"));
    let running = bench.expect(saved("train.py"));
    assert!(!bench.want(A, Work::BatchSizes(Effort::Estimates, 1)));
    assert!(bench.want(A, Work::BatchSizes(Effort::Runs, 1)));
    assert!(bench.started_when_free().is_none());
    bench.end(&running);
    bench.expect(Work::BatchSizes(Effort::Runs, 1));
}

#[test]
fn background_work_ends_with_its_budget() {
    let mut bench = Bench::new();
    bench.want(A, Work::Findings(1));
    let job = bench.expect(Work::Findings(1));
    assert_eq!(job.limit, None);
    bench.pass(4);
    bench.end(&job);
    bench.want(A, Work::Probes(1));
    let job = bench.expect(Work::Probes(1));
    assert_eq!(job.limit, Some(Duration::from_secs(6)));
    bench.pass(7);
    bench.end(&job);
    bench.want(A, SWEEP);
    assert!(bench.started_when_free().is_none());
    assert_eq!(bench.skipped, [SWEEP]);
    // Another workspace has its own, and commands have no limit.
    bench.want(B, SWEEP);
    let job = bench.expect(SWEEP);
    assert_eq!(job.limit, Some(Duration::from_secs(10)));
    bench.end(&job);
    bench.want(A, Work::BatchSizes(Effort::Runs, 1));
    let job = bench.expect(Work::BatchSizes(Effort::Runs, 1));
    assert_eq!(job.limit, None);
    bench.end(&job);
    // The next measurement has the whole budget again.
    bench.scheduler.measured(A);
    bench.want(A, SWEEP);
    assert_eq!(bench.expect(SWEEP).limit, Some(Duration::from_secs(10)));
}

#[test]
fn without_a_budget_only_the_recording_is_read() {
    let mut bench = Bench::new();
    bench.scheduler.set_budget(Duration::ZERO);
    bench.want(A, Work::Probes(1));
    bench.want(B, SWEEP);
    assert!(bench.started_when_free().is_none());
    assert_eq!(bench.skipped.len(), 2);
    bench.want(A, Work::WhatIfs(1));
    bench.expect(Work::WhatIfs(1));
}

#[test]
fn on_a_busy_machine_probes_are_left_out_and_batch_sizes_wait() {
    let mut bench = Bench::new();
    bench.want(A, SWEEP);
    bench.want(A, Work::Probes(1));
    assert!(bench.started().is_none());
    assert_eq!(bench.looks, 1);
    bench.scheduler.machine_seen(Some(Needed::Processors));
    assert!(bench.started().is_none());
    assert_eq!(bench.skipped, [Work::Probes(1)]);
    assert_eq!(bench.scheduler.waits_for(A), Some(Needed::Processors));
    assert_eq!(bench.scheduler.waits_for(B), None);
    // It is looked at again, and no sooner.
    assert_eq!(bench.looks, 1);
    bench.scheduler.look_again();
    bench.expect(SWEEP);
    assert_eq!(bench.looks, 2);
    assert_eq!(bench.scheduler.waits_for(A), None);
}

#[test]
fn what_a_person_waits_for_starts_on_a_busy_machine() {
    for work in [saved("a.py"), asked(), Work::Estimate(1), Work::Findings(1), Work::WhatIfs(1)] {
        let mut bench = Bench::new();
        bench.want(B, SWEEP);
        assert!(bench.started().is_none());
        // While it is being looked at, and after.
        if matches!(work, Work::Run(_)) {
            bench.want(A, work.clone());
            let job = bench.started().expect("it does not wait for the look");
            assert_eq!(job.work, work);
            bench.end(&job);
        }
        bench.scheduler.machine_seen(Some(Needed::Gpu));
        bench.want(A, work.clone());
        assert_eq!(bench.started().expect("it starts").work, work);
    }
}

#[test]
fn a_machine_that_was_free_is_looked_at_before_each_start() {
    let mut bench = Bench::new();
    for seen in 1..4 {
        bench.want(A, SWEEP);
        let job = bench.expect(SWEEP);
        assert_eq!(bench.looks, seen);
        bench.end(&job);
    }
    // What was seen while a run went on is old when it has ended.
    bench.want(A, SWEEP);
    assert!(bench.started().is_none());
    bench.want(B, saved("b.py"));
    let run = bench.expect(saved("b.py"));
    bench.scheduler.machine_seen(None);
    bench.end(&run);
    bench.want(A, SWEEP);
    assert!(bench.started().is_none());
    assert_eq!(bench.looks, 5);
}

#[test]
fn a_newer_measurement_replaces_the_study_of_an_older_one() {
    let mut bench = Bench::new();
    bench.want(A, Work::WhatIfs(1));
    let job = bench.expect(Work::WhatIfs(1));
    assert!(bench.want(A, Work::Findings(2)));
    assert!(job.is_stopped());
    bench.end(&job);
    bench.expect(Work::Findings(2));
}

#[test]
fn a_pause_leaves_what_a_person_asked_for() {
    let mut bench = Bench::new();
    bench.want(A, asked());
    let job = bench.expect(asked());
    bench.want(A, saved("a.py"));
    bench.want(B, saved("b.py"));
    bench.scheduler.pause(A);
    assert!(!job.is_stopped());
    bench.end(&job);
    let job = bench.expect(saved("b.py"));
    bench.scheduler.pause(B);
    assert!(job.is_stopped());
}

#[test]
fn a_progress_that_is_cancelled_stops_its_job() {
    let mut bench = Bench::new();
    bench.want(A, saved("a.py"));
    let job = bench.expect(saved("a.py"));
    bench.scheduler.stop_progress("ridgeline/run/77");
    assert!(!job.is_stopped());
    bench.scheduler.stop_progress(&job.progress_token());
    assert!(job.is_stopped());
}

#[test]
fn a_workspace_that_is_gone_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.want(A, Work::Estimate(1));
    let job = bench.expect(Work::Estimate(1));
    bench.want(A, Work::Findings(1));
    bench.scheduler.remember(&job);
    bench.scheduler.forget(A);
    assert!(job.is_stopped());
    bench.end(&job);
    assert!(bench.started().is_none());
    assert!(bench.skipped.is_empty());
    assert!(bench.want(A, Work::Estimate(1)));
}
