//! The severity of a finding: by its share of the iteration time or of peak memory.

use super::affects_correctness;
use super::finding::Finding;
use ridgeline_profile::Profile;

/// A finding with at least this share of the iteration time or of peak memory is a warning.
const WARNING: f64 = 0.05;
/// The smallest share for information; anything below is a hint.
const INFORMATION: f64 = 0.01;

/// The severity of the diagnostic in an editor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Low impact, or not measured.
    Hint,
    /// Medium impact.
    Information,
    /// High impact.
    Warning,
}

impl Severity {
    /// The name in settings and documents.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Hint => "hint",
            Severity::Information => "information",
            Severity::Warning => "warning",
        }
    }
}

/// The finding's share of the iteration time or of peak memory, whichever is larger; 0 if its cost
/// is unknown.
pub fn weight(finding: &Finding, profile: &Profile) -> f64 {
    let Some(cost) = finding.cost else { return 0.0 };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let time = share(cost.time_ns, profile.iteration.mean_ns());
    time.max(share(cost.bytes, profile.memory.peak_bytes as f64))
}

/// Whether most good programs have this finding: hardly any CPU program creates its optimizer with
/// `fused=True`.
fn is_common(finding: &Finding, profile: &Profile) -> bool {
    finding.rule == "unfused-optimizer" && profile.device.kind == "cpu"
}

/// Returns the severity by the share that the finding costs; without a profile, that share is
/// unknown. A finding that affects correctness is always a warning. One that most good programs
/// have is never a warning.
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
