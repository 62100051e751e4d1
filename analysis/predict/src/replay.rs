//! How long an iteration takes when its GPU is another: the host's calls as they were recorded, the
//! GPU's work as long as it is said to be.
//!
//! The GPU does what it was asked for in order, each work when it was launched and the one before is
//! done; the host goes on at once, except where it waits. So an iteration whose host was slower than
//! its GPU stays as long on a faster one, and one that was bound by the GPU becomes shorter until
//! the host is what it waits for: the idea is Daydream's (Zhu et al., USENIX ATC 2020), with the
//! host's tasks kept and the GPU's exchanged.

use ridgeline_operators::recorded_step::{HostEvent, HostEventKind, RecordedStep};

/// From the end of a launch call to the start of its kernel on an idle GPU, in nanoseconds. The
/// sample traces have 1 to 4 µs beyond the call.
const LAUNCH_DELAY_NS: f64 = 2_000.0;
/// Launches that wait in the driver's queue before the next one blocks. CUDA's holds 1,024.
const QUEUE_LENGTH: usize = 1_024;
/// A launch call that took longer than this was blocked by a full queue, in nanoseconds: the time
/// beyond is waiting, which replaying finds anew.
const LONGEST_LAUNCH_NS: f64 = 100_000.0;
/// Iterations until one follows the other as in a long run.
const WARM_UP: usize = 2;

/// Replays an iteration again and again.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    step: &'a RecordedStep,
    /// What the host's times are multiplied by: recording slowed it down.
    host_factor: f64,
    /// What the GPU's times are multiplied by.
    gpu_factor: f64,
}

impl<'a> Replay<'a> {
    /// A replay that gives the iteration the time that it takes without a profiler, where its GPU's
    /// work takes what was recorded.
    pub fn calibrated(step: &'a RecordedStep) -> Replay<'a> {
        let recorded: Vec<f64> = step.activities.iter().map(|work| work.part_ns).collect();
        let mut replay = Replay { step, host_factor: 1.0, gpu_factor: 1.0 };
        if step.time_ns <= 0.0 || step.host.is_empty() {
            return replay;
        }
        let time_with =
            |host_factor: f64| Replay { step, host_factor, gpu_factor: 1.0 }.time_ns(&recorded);
        // The iteration grows with the host's time. Where even a host without any leaves it too
        // long, the GPU's work was slowed down; where it is bound by the GPU, every host up to some
        // factor fits, and the slowest of these promises least.
        let (mut low, mut high) = (0.0, MOST_HOST);
        if time_with(high) <= step.time_ns {
            low = high;
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if time_with(middle) <= step.time_ns * (1.0 + 1e-9) {
                low = middle;
            } else {
                high = middle;
            }
        }
        // The host of the profiled iteration was no faster than it is without a profiler.
        replay.host_factor = low.min(1.0);
        let found = replay.time_ns(&recorded);
        if found > 0.0 && low == 0.0 {
            replay.gpu_factor = step.time_ns / found;
        }
        replay
    }

    /// The same with a host that takes `factor` of the time.
    pub fn with_host(&self, factor: f64) -> Replay<'a> {
        Replay { host_factor: self.host_factor * factor, ..self.clone() }
    }

    /// Nanoseconds of one of many iterations, where the works of the GPU take `durations_ns`, in
    /// the order of [`RecordedStep::activities`].
    pub fn time_ns(&self, durations_ns: &[f64]) -> f64 {
        let step = self.step;
        if step.host.is_empty() {
            // Nothing is known of the host but how long the GPU was idle.
            let idle = (step.time_ns - step.busy_ns()).max(0.0);
            return durations_ns.iter().sum::<f64>() * self.gpu_factor + idle;
        }
        let mut host = 0.0_f64;
        let mut gpu = 0.0_f64;
        let mut ends: Vec<f64> = vec![0.0; QUEUE_LENGTH];
        let mut launches = 0_usize;
        let mut before = 0.0;
        for iteration in 0..=WARM_UP {
            before = if iteration == WARM_UP { host.max(gpu) } else { before };
            for HostEvent { before_ns, call_ns, kind } in &step.host {
                host += before_ns * self.host_factor;
                match kind {
                    HostEventKind::Launch(work) => {
                        host += call_ns.min(LONGEST_LAUNCH_NS) * self.host_factor;
                        let slot = launches % QUEUE_LENGTH;
                        let room_at = ends.get(slot).copied().unwrap_or(0.0);
                        host = host.max(room_at);
                        let duration = durations_ns.get(*work as usize).copied().unwrap_or(0.0);
                        gpu = gpu.max(host + LAUNCH_DELAY_NS) + duration * self.gpu_factor;
                        if let Some(end) = ends.get_mut(slot) {
                            *end = gpu;
                        }
                        launches += 1;
                    }
                    HostEventKind::Wait => host = host.max(gpu),
                }
            }
            host += step.host_after_ns * self.host_factor;
        }
        host.max(gpu) - before
    }
}

/// A host that is slower than the recorded one by more has something else to do.
const MOST_HOST: f64 = 4.0;
/// Until the host's factor is known to a ten thousandth.
const HALVINGS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::occupancy::Launch;
    use ridgeline_operators::recorded_step::{GpuWork, WorkKind};

    /// Launches of kernels as `(host before, kernel)` in microseconds; 0 for a kernel is a wait.
    fn step(time_us: f64, events: &[(f64, f64)]) -> RecordedStep {
        let mut step = RecordedStep { time_ns: time_us * 1e3, ..RecordedStep::default() };
        for (before, kernel) in events {
            let kind = if *kernel == 0.0 {
                HostEventKind::Wait
            } else {
                let time_ns = kernel * 1e3;
                step.activities.push(GpuWork {
                    kind: WorkKind::Kernel,
                    part_ns: time_ns,
                    time_ns,
                    launch: Launch::default(),
                    bytes: None,
                    operator: None,
                });
                HostEventKind::Launch(step.activities.len() as u32 - 1)
            };
            step.host.push(HostEvent { before_ns: before * 1e3, call_ns: 0.0, kind });
        }
        step
    }

    #[track_caller]
    fn check(step: &RecordedStep, gpu_takes: f64, expected_us: f64) {
        let durations: Vec<f64> =
            step.activities.iter().map(|work| work.part_ns * gpu_takes).collect();
        let found = Replay::calibrated(step).time_ns(&durations) / 1e3;
        assert!((found / expected_us - 1.0).abs() < 0.02, "{found} rather than {expected_us}");
    }

    #[test]
    fn the_same_gpu_takes_the_same_time() {
        check(&step(1000.0, &[(100.0, 400.0), (100.0, 600.0)]), 1.0, 1000.0);
        check(&step(1000.0, &[(500.0, 40.0), (500.0, 60.0)]), 1.0, 1000.0);
        check(&step(1100.0, &[(100.0, 1000.0), (0.0, 0.0)]), 1.0, 1100.0);
        // It was slower with the profiler: the host alone, or the GPU as well.
        check(&step(700.0, &[(500.0, 40.0), (500.0, 60.0)]), 1.0, 700.0);
        check(&step(800.0, &[(100.0, 400.0), (100.0, 600.0)]), 1.0, 800.0);
    }

    #[test]
    fn an_iteration_that_is_bound_by_the_host_stays_as_long() {
        check(&step(1000.0, &[(500.0, 40.0), (500.0, 60.0)]), 0.1, 1000.0);
    }

    #[test]
    fn one_that_is_bound_by_the_gpu_becomes_shorter_until_the_host_is_what_it_waits_for() {
        let step = step(1000.0, &[(100.0, 400.0), (100.0, 600.0)]);
        check(&step, 0.5, 500.0);
        check(&step, 2.0, 2000.0);
        check(&step, 0.01, 200.0);
    }

    #[test]
    fn waiting_adds_what_the_gpu_takes_to_what_the_host_takes() {
        let step = step(1102.0, &[(100.0, 1000.0), (0.0, 0.0)]);
        check(&step, 0.5, 602.0);
        check(&step, 0.01, 112.0);
    }

    #[test]
    fn a_full_queue_keeps_the_host_back() {
        let many: Vec<(f64, f64)> = (0..5000).map(|_| (1.0, 10.0)).collect();
        check(&step(50_000.0, &many), 1.0, 50_000.0);
        check(&step(50_000.0, &many), 0.01, 5_000.0);
    }

    #[test]
    fn without_launches_the_idle_time_is_kept() {
        let mut step = step(1000.0, &[(100.0, 300.0), (100.0, 500.0)]);
        step.host.clear();
        check(&step, 0.5, 600.0);
    }

    #[test]
    fn nothing_takes_no_time() {
        let step = RecordedStep::default();
        assert_eq!(Replay::calibrated(&step).time_ns(&[]), 0.0);
    }
}
