//! Predicts the iteration time with a different GPU: host calls as recorded, GPU work with the
//! given durations.
//!
//! The GPU runs its work in order, each item once it is launched and the previous one is finished.
//! The host continues immediately, except where it waits. So an iteration whose host was slower
//! than its GPU takes as long on a faster GPU, and a GPU-bound one becomes shorter until it is
//! host-bound. The idea is from Daydream (Zhu et al., USENIX ATC 2020), with the host's tasks kept
//! and the GPU's replaced.

use ridgeline_operators::recorded_step::{HostEvent, HostEventKind, RecordedStep};

/// Delay from the end of a launch call to the start of its kernel on an idle GPU, in nanoseconds.
/// In the sample traces it is 1 to 4 µs.
const LAUNCH_DELAY_NS: f64 = 2_000.0;
/// The maximum number of queued launches before the next one blocks. CUDA's queue holds 1,024.
const QUEUE_LENGTH: usize = 1_024;
/// The number of iterations until the replay is in a steady state.
const WARM_UP: usize = 2;

/// Replays an iteration repeatedly.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    step: &'a RecordedStep,
    /// The factor of host times: recording slowed the host down.
    host_factor: f64,
    /// The factor of GPU times.
    gpu_factor: f64,
    /// Nanoseconds of the iteration that the replay does not explain.
    unexplained_ns: f64,
}

impl<'a> Replay<'a> {
    /// Returns a replay calibrated to reproduce the iteration time without a profiler from the
    /// recorded GPU work.
    pub fn calibrated(step: &'a RecordedStep) -> Replay<'a> {
        let recorded: Vec<f64> = step.activities.iter().map(|work| work.part_ns).collect();
        let mut replay = Replay { step, host_factor: 1.0, gpu_factor: 1.0, unexplained_ns: 0.0 };
        if step.time_ns <= 0.0 || step.host.is_empty() {
            return replay;
        }
        let uncalibrated = replay.clone();
        let time_with =
            |host_factor: f64| Replay { host_factor, ..uncalibrated.clone() }.time_ns(&recorded);
        // The iteration grows with host time. If it is too long even without any host time,
        // recording slowed the GPU down. If it is GPU-bound, every host factor up to some value
        // fits; the largest of these gives the most conservative predictions.
        let (mut low, mut high) = (0.0, MAX_HOST_FACTOR);
        if time_with(high) <= step.time_ns {
            low = high;
        }
        for _ in 0..BISECTION_STEPS {
            let middle = 0.5 * (low + high);
            if time_with(middle) <= step.time_ns * (1.0 + 1e-9) {
                low = middle;
            } else {
                high = middle;
            }
        }
        // The host was not faster with the profiler than without it.
        replay.host_factor = low.min(1.0);
        let found = replay.time_ns(&recorded);
        if found > 0.0 && low == 0.0 {
            replay.gpu_factor = step.time_ns / found;
        } else if found < (1.0 - MAX_UNEXPLAINED) * step.time_ns {
            replay.unexplained_ns = step.time_ns - found;
        }
        replay
    }

    /// Returns the nanoseconds of the recorded iteration that neither the host nor the GPU's work
    /// explains, if they are a relevant share of it; else 0. They are part of every prediction,
    /// because nothing shows that another GPU would save them.
    pub fn unexplained_ns(&self) -> f64 {
        self.unexplained_ns
    }

    /// Returns a replay whose host times are multiplied by `factor`.
    pub fn with_host(&self, factor: f64) -> Replay<'a> {
        Replay { host_factor: self.host_factor * factor, ..self.clone() }
    }

    /// Returns the steady-state iteration time in nanoseconds if the GPU work takes `durations_ns`,
    /// in the order of [`RecordedStep::activities`].
    pub fn time_ns(&self, durations_ns: &[f64]) -> f64 {
        let step = self.step;
        if step.host.is_empty() {
            // Only the idle time of the GPU is known about the host.
            let idle = (step.time_ns - step.busy_ns()).max(0.0);
            return durations_ns.iter().sum::<f64>() * self.gpu_factor + idle;
        }
        let mut host = 0.0_f64;
        let mut gpu = 0.0_f64;
        let mut ends: Vec<f64> = vec![0.0; QUEUE_LENGTH];
        let mut launches = 0_usize;
        let mut steady_start = 0.0;
        for iteration in 0..=WARM_UP {
            steady_start = if iteration == WARM_UP { host.max(gpu) } else { steady_start };
            for HostEvent { before_ns, call_ns, kind } in &step.host {
                host += before_ns * self.host_factor;
                match kind {
                    HostEventKind::Launch(work) => {
                        host += call_ns * self.host_factor;
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
        host.max(gpu) - steady_start + self.unexplained_ns
    }
}

/// The largest share of the recorded iteration by which its replay may be too short.
const MAX_UNEXPLAINED: f64 = 0.1;
/// The maximum host factor. A host slower than that has another cause.
const MAX_HOST_FACTOR: f64 = 4.0;
/// The number of bisection steps, which determine the host factor to 1/10,000.
const BISECTION_STEPS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::occupancy::Launch;
    use ridgeline_operators::recorded_step::{GpuWork, WorkKind};

    /// Builds a step from launches `(host time before, kernel time)` in microseconds; a kernel time
    /// of 0 is a wait.
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
    fn check(step: &RecordedStep, gpu_factor: f64, expected_us: f64) {
        let durations: Vec<f64> =
            step.activities.iter().map(|work| work.part_ns * gpu_factor).collect();
        let found = Replay::calibrated(step).time_ns(&durations) / 1e3;
        assert!((found / expected_us - 1.0).abs() < 0.02, "{found} rather than {expected_us}");
    }

    #[test]
    fn the_same_gpu_takes_the_same_time() {
        check(&step(1000.0, &[(100.0, 400.0), (100.0, 600.0)]), 1.0, 1000.0);
        check(&step(1000.0, &[(500.0, 40.0), (500.0, 60.0)]), 1.0, 1000.0);
        check(&step(1100.0, &[(100.0, 1000.0), (0.0, 0.0)]), 1.0, 1100.0);
        // It was slower with the profiler: only the host, or the GPU as well.
        check(&step(700.0, &[(500.0, 40.0), (500.0, 60.0)]), 1.0, 700.0);
        check(&step(800.0, &[(100.0, 400.0), (100.0, 600.0)]), 1.0, 800.0);
    }

    #[test]
    fn a_host_bound_iteration_does_not_change() {
        check(&step(1000.0, &[(500.0, 40.0), (500.0, 60.0)]), 0.1, 1000.0);
    }

    #[test]
    fn a_gpu_bound_iteration_becomes_shorter_until_it_is_host_bound() {
        let step = step(1000.0, &[(100.0, 400.0), (100.0, 600.0)]);
        check(&step, 0.5, 500.0);
        check(&step, 2.0, 2000.0);
        check(&step, 0.01, 200.0);
    }

    #[test]
    fn synchronization_adds_gpu_time_to_host_time() {
        let step = step(1102.0, &[(100.0, 1000.0), (0.0, 0.0)]);
        check(&step, 0.5, 602.0);
        check(&step, 0.01, 112.0);
    }

    #[test]
    fn a_full_queue_blocks_the_host() {
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
    fn unexplained_time_stays_on_every_gpu() {
        let step = step(1000.0, &[(100.0, 400.0), (0.0, 0.0)]);
        check(&step, 1.0, 1000.0);
        check(&step, 0.5, 800.0);
        assert!((Replay::calibrated(&step).unexplained_ns() / 1e3 - 498.0).abs() < 1.0);
    }

    #[test]
    fn an_empty_step_takes_no_time() {
        let step = RecordedStep::default();
        assert_eq!(Replay::calibrated(&step).time_ns(&[]), 0.0);
    }
}
