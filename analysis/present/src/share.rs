//! Shares of the iteration's time and of peak memory.

use ridgeline_profile::{LineCost, PhaseTimes, Profile};

/// The share of the iteration's time, 0 to 1; 0 if that is unknown.
pub(super) fn share(time: &PhaseTimes, profile: &Profile) -> f64 {
    share_of_whole(time.total(), profile)
}

/// The share of the iteration's time, 0 to 1; 0 if that is unknown.
pub(super) fn share_of_whole(time_ns: f64, profile: &Profile) -> f64 {
    share_of(time_ns, profile.iteration.time_ns)
}

/// Returns `part / whole`, limited to 0 to 1; 0 if the whole is unknown.
pub(super) fn share_of(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() && whole > 0.0 { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// The share of the iteration, 0 to 1, during which a GPU was busy: without the profiler if the
/// iteration could be replayed, otherwise over the recording. `None` without a GPU.
pub(super) fn gpu_busy(profile: &Profile) -> Option<f64> {
    let replayed = profile.metrics.as_ref().filter(|metrics| metrics.on_gpu);
    let recorded = profile.gpu.filter(|gpu| gpu.span_ns > 0);
    match replayed {
        Some(metrics) => Some(share_of(metrics.whole.busy_ns, metrics.iteration_ns)),
        None => recorded.map(|gpu| share_of(gpu.busy_ns as f64, gpu.span_ns as f64)),
    }
}

/// The share of peak memory, 0 to 1; 0 if that is unknown.
pub(super) fn share_of_peak(bytes: u64, profile: &Profile) -> f64 {
    share_of(bytes as f64, profile.memory.peak_bytes as f64)
}

/// The rank of a line with this self time among all lines of the profile, counted from 1. `None` if
/// it takes no time.
pub(super) fn rank(profile: &Profile, self_ns: f64) -> Option<usize> {
    let is_longer = |line: &&LineCost| line.self_time.total() > self_ns;
    (self_ns > 0.0).then(|| 1 + profile.lines.iter().flatten().filter(is_longer).count())
}
