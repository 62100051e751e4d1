//! What share of the iteration something is.

use ridgeline_profile::{LineCost, PhaseTimes, Profile};

/// Of the iteration's time, 0 to 1; 0 where that is not known.
pub(super) fn share(time: &PhaseTimes, profile: &Profile) -> f64 {
    share_of_whole(time.total(), profile)
}

/// Of the iteration's time, 0 to 1; 0 where that is not known.
pub(super) fn share_of_whole(time_ns: f64, profile: &Profile) -> f64 {
    share_of(time_ns, profile.iteration.time_ns)
}

/// `part / whole`, within 0 and 1; 0 where the whole is not known.
pub(super) fn share_of(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() && whole > 0.0 { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// The share of an iteration, 0 to 1, in which a GPU was busy: without the profiler, as far as the
/// iteration could be replayed, else over the recording. Nothing without a GPU.
pub(super) fn gpu_busy(profile: &Profile) -> Option<f64> {
    let replayed = profile.metrics.as_ref().filter(|metrics| metrics.on_gpu);
    let recorded = profile.gpu.filter(|gpu| gpu.span_ns > 0);
    match replayed {
        Some(metrics) => Some(share_of(metrics.whole.busy_ns, metrics.iteration_ns)),
        None => recorded.map(|gpu| share_of(gpu.busy_ns as f64, gpu.span_ns as f64)),
    }
}

/// Bytes of the peak, 0 to 1; 0 where that is not known.
pub(super) fn share_of_peak(bytes: u64, profile: &Profile) -> f64 {
    share_of(bytes as f64, profile.memory.peak_bytes as f64)
}

/// Which place a line of this time of its own takes among all lines of the profile, counted from 1;
/// nothing where it takes no time.
pub(super) fn rank(profile: &Profile, own_ns: f64) -> Option<usize> {
    let costlier = |line: &&LineCost| line.self_time.total() > own_ns;
    (own_ns > 0.0).then(|| 1 + profile.lines.iter().flatten().filter(costlier).count())
}
