//! How much a finding matters: by its share of the iteration or of the peak.

use super::affects_correctness;
use super::finding::Finding;
use ridgeline_profile::Profile;

/// From this share of the iteration or of the peak on, a finding is a warning.
const WARNING: f64 = 0.05;
/// From this share on, it is worth knowing; below it is a hint.
const INFORMATION: f64 = 0.01;

/// What an editor makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Little, or nobody measured it.
    Hint,
    /// Some.
    Information,
    /// Much.
    Warning,
}

impl Severity {
    /// As settings and documents name it.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Hint => "hint",
            Severity::Information => "information",
            Severity::Warning => "warning",
        }
    }
}

/// The share of the iteration or of the peak that a finding costs, whichever is more; 0 where it was
/// not measured.
pub fn weight(finding: &Finding, profile: &Profile) -> f64 {
    let Some(cost) = finding.cost else { return 0.0 };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let time = share(cost.time_ns, profile.iteration.time_ns);
    time.max(share(cost.bytes, profile.memory.peak_bytes as f64))
}

/// Whether most good programs have it: on a CPU, hardly any makes its optimizer with `fused=True`.
fn is_common(finding: &Finding, profile: &Profile) -> bool {
    finding.rule == "unfused-optimizer" && profile.device.kind == "cpu"
}

/// By the share that it costs; without a profile nothing is known of that. A fault that affects
/// correctness is always a warning. What good programs have too never is.
pub fn severity(finding: &Finding, profile: Option<&Profile>) -> Severity {
    if affects_correctness(finding.rule) {
        return Severity::Warning;
    }
    let Some(profile) = profile else { return Severity::Hint };
    match weight(finding, profile) {
        share if share >= WARNING && !is_common(finding, profile) => Severity::Warning,
        share if share >= INFORMATION => Severity::Information,
        _ => Severity::Hint,
    }
}
