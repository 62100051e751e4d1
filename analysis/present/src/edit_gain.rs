//! The predicted gain of an edit, for the title of its code action.

use ridgeline_base::units;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::study::{MIN_REPORTED_SPEEDUP, Study};

use crate::what_ifs::speedup;

/// The predicted gain of an edit. The default is an unknown gain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gain {
    /// Iteration time before the edit divided by the time after it; 0 if unknown.
    pub speedup: f64,
    /// The suffix of the edit's title: `: ~1.2×, −26% memory`.
    pub text: String,
}

/// Returns the predicted gain. `None` if the optimization does not apply, or saves neither time nor
/// memory.
pub fn predicted_gain(study: &Study, kind: EditKind) -> Option<Gain> {
    let name = kind.name();
    if study.what_ifs.refusals.iter().any(|refused| refused.name == name) {
        return None;
    }
    let Some(prediction) = study.prediction(name) else { return Some(Gain::default()) };
    let factor = prediction.speedup().value;
    let memory = prediction.before_peak_bytes.zip(prediction.peak_bytes);
    let memory = memory.map(|(before, after)| after.value / before);
    let is_faster = factor >= MIN_REPORTED_SPEEDUP;
    let is_smaller = memory.is_some_and(|ratio| ratio * MIN_REPORTED_SPEEDUP < 1.0);
    if !is_faster && !is_smaller {
        return None;
    }
    let mut text = format!(": ~{}", speedup(factor));
    if let Some(ratio) = memory.filter(|ratio| (ratio - 1.0).abs() >= MIN_REPORTED_SPEEDUP - 1.0) {
        text += &format!(", {} memory", units::difference(ratio));
    }
    Some(Gain { speedup: factor, text })
}
