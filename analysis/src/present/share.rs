//! What share of the iteration something is.

use crate::profile::{PhaseTimes, Profile};

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

/// Bytes of the peak, 0 to 1; 0 where that is not known.
pub(super) fn share_of_peak(bytes: u64, profile: &Profile) -> f64 {
    share_of(bytes as f64, profile.memory.peak_bytes as f64)
}
