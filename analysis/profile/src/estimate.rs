//! [`Estimate`]: what a profile is based on that no run measured.

use super::Profile;

/// Marks a profile that no run measured: of text that has not run, or of a device that is not
/// available.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The target device, if it differs from the device the program ran on.
    pub target: Option<String>,
    /// The baseline of the headline's change: the last measurement, or the estimate of the saved
    /// text for the same device.
    pub before: Option<Baseline>,
}

/// The headline numbers before an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    /// Nanoseconds per iteration.
    pub time_ns: f64,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
}

impl Baseline {
    /// Returns the headline numbers of a profile.
    pub fn of(profile: &Profile) -> Baseline {
        Baseline {
            time_ns: profile.iteration.time_ns,
            batch_size: profile.iteration.batch_size,
            peak_bytes: profile.memory.peak_bytes,
        }
    }

    /// Returns samples per second, if the batch size is known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let batch = self.batch_size? as f64;
        (self.time_ns > 0.0).then(|| batch / (self.time_ns / 1e9))
    }
}
