//! What an edit is predicted to gain, as the title of its action tells it.

use ridgeline_base::units;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::study::{Study, WORTH_TELLING};

use crate::what_ifs::speedup;

/// What an edit is predicted to gain. The default is an unknown gain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gain {
    /// The time of an iteration before the edit by that after it; 0 where it is unknown.
    pub speedup: f64,
    /// Behind the edit's title: `: ~1.2×, −26% memory`.
    pub text: String,
}

/// Nothing where the optimization does not apply, or gains neither time nor memory.
pub fn predicted_gain(study: &Study, kind: EditKind) -> Option<Gain> {
    let name = kind.name();
    if study.what_ifs.refusals.iter().any(|refused| refused.name == name) {
        return None;
    }
    let Some(prediction) = study.prediction(name) else { return Some(Gain::default()) };
    let factor = prediction.speedup().value;
    let memory = prediction.before_peak_bytes.zip(prediction.peak_bytes);
    let memory = memory.map(|(before, after)| after.value / before);
    let is_faster = factor >= WORTH_TELLING;
    let is_smaller = memory.is_some_and(|ratio| ratio * WORTH_TELLING < 1.0);
    if !is_faster && !is_smaller {
        return None;
    }
    let mut text = format!(": ~{}", speedup(factor));
    if let Some(ratio) = memory.filter(|ratio| (ratio - 1.0).abs() >= WORTH_TELLING - 1.0) {
        text += &format!(", {} memory", units::difference(ratio));
    }
    Some(Gain { speedup: factor, text })
}
