//! The estimated speedups of optimizations: `what_ifs` of the document.

use std::sync::Arc;

use serde::Serialize;

use super::devices::Range;
use super::{Place, finite, name};
use ridgeline_base::printable::{clean, shorten};
use ridgeline_operators::range;
use ridgeline_optimize::accuracy::{Accuracy, Pair, accuracy};
use ridgeline_optimize::optimization::Prediction;
use ridgeline_optimize::ranking::Inapplicable;
use ridgeline_optimize::recompute_curve::Point;
use ridgeline_optimize::study::{Study, optimization};
use ridgeline_profile::{FileId, Profile};

/// The maximum length of each list.
const MAX_ENTRIES: usize = 64;

/// The predictions and measurements of optimizations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WhatIfs {
    /// The predictions. `None` while they are computed, or if they are not available.
    pub study: Option<Arc<Study>>,
    /// The current activity, or why there are no predictions: a sentence.
    pub message: Option<String>,
    /// By name of the optimization, whether its edit can be applied to the current text, or why
    /// not.
    pub edits: Vec<(String, Result<(), String>)>,
    /// Measurements of optimizations in this project, newest first.
    pub pairs: Vec<Pair>,
    /// The optimization that is being measured.
    pub measuring: Option<String>,
}

/// `what_ifs`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct WhatIfsEntry {
    replay_error: Option<f64>,
    message: Option<String>,
    before: Option<Before>,
    rows: Vec<Row>,
    combinations: Vec<Combination>,
    refusals: Vec<Refusal>,
    recompute: Vec<Recompute>,
    accuracy: Option<Accuracy>,
    measuring: Option<String>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Before {
    time_ns: f64,
    peak_bytes: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    name: String,
    title: String,
    source: String,
    time_ns: Range,
    speedup: Range,
    samples_per_second: Option<Range>,
    peak_bytes: Option<Range>,
    lines: Vec<Place>,
    notes: Vec<String>,
    edit: Edit,
    research: bool,
    measured: Option<MeasuredEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Edit {
    possible: bool,
    why: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct MeasuredEntry {
    before_ns: f64,
    time_ns: f64,
    speedup: Option<f64>,
    peak_bytes: Option<f64>,
    when_unix_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Combination {
    names: Vec<String>,
    title: String,
    time_ns: Range,
    speedup: Range,
    peak_bytes: Option<Range>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Refusal {
    name: &'static str,
    title: &'static str,
    why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Recompute {
    time_ns: f64,
    peak_bytes: f64,
    lines: Vec<Place>,
    /// Whether checkpoints on these lines give exactly this point.
    is_an_edit: bool,
}

impl WhatIfsEntry {
    pub(super) fn of(what_ifs: &WhatIfs, profile: &Profile) -> WhatIfsEntry {
        let study = what_ifs.study.as_deref();
        let predictions = study.map(|study| study.what_ifs.predictions.as_slice());
        let combinations = study.map(|study| study.what_ifs.combinations.as_slice());
        let refusals = study.map(|study| study.what_ifs.refusals.as_slice());
        WhatIfsEntry {
            // An error that is not finite is unknown rather than 0.
            replay_error: study
                .map(|study| study.replay_error.abs())
                .filter(|error| error.is_finite()),
            message: what_ifs.message.as_deref().map(sentence),
            before: study.map(|study| Before {
                time_ns: rounded(study.iteration_ns),
                peak_bytes: study.peak_bytes.map(rounded),
            }),
            rows: predictions
                .unwrap_or_default()
                .iter()
                .take(MAX_ENTRIES)
                .map(|one| Row::of(one, what_ifs, profile))
                .collect(),
            combinations: combinations
                .unwrap_or_default()
                .iter()
                .take(MAX_ENTRIES)
                .map(Combination::of)
                .collect(),
            refusals: refusals
                .unwrap_or_default()
                .iter()
                .take(MAX_ENTRIES)
                .map(Refusal::of)
                .collect(),
            recompute: study
                .map(|study| study.recompute.as_slice())
                .unwrap_or_default()
                .iter()
                .take(MAX_ENTRIES)
                .map(|one| Recompute::of(one, profile))
                .collect(),
            accuracy: accuracy(&what_ifs.pairs),
            measuring: what_ifs.measuring.as_deref().map(name),
            notes: study
                .map(|study| {
                    study.notes.iter().take(MAX_ENTRIES).map(|note| sentence(note)).collect()
                })
                .unwrap_or_default(),
        }
    }
}

impl Row {
    fn of(prediction: &Prediction, what_ifs: &WhatIfs, profile: &Profile) -> Row {
        let first_name = prediction.names.first().map(String::as_str).unwrap_or_default();
        let known = optimization(first_name);
        let study = what_ifs.study.as_deref();
        let edit = what_ifs.edits.iter().find(|(name, _)| name == first_name).map(|(_, edit)| edit);
        let edit = match edit {
            Some(Ok(())) => Edit { possible: true, why: None },
            Some(Err(why)) => Edit { possible: false, why: Some(sentence(why)) },
            None => {
                let why = known.map_or("no automatic edit", |one| one.why_no_edit());
                Edit { possible: false, why: Some(why.to_owned()) }
            }
        };
        let measured = what_ifs.pairs.iter().find(|pair| pair.name == first_name);
        Row {
            name: name(first_name),
            title: prediction.title.clone(),
            source: known.map(|one| one.source().to_owned()).unwrap_or_default(),
            time_ns: whole_range(prediction.time_ns),
            speedup: prediction.speedup().into(),
            samples_per_second: study
                .and_then(|study| study.samples_per_second(prediction))
                .map(Into::into),
            peak_bytes: prediction.peak_bytes.map(whole_range),
            lines: places(profile, &prediction.lines),
            notes: prediction.notes.iter().take(MAX_ENTRIES).map(|note| sentence(note)).collect(),
            edit,
            research: prediction.is_research,
            measured: measured.map(MeasuredEntry::of),
        }
    }
}

impl MeasuredEntry {
    fn of(pair: &Pair) -> MeasuredEntry {
        MeasuredEntry {
            before_ns: rounded(pair.measured.before_ns),
            time_ns: rounded(pair.measured.after_ns),
            speedup: pair.measured.speedup(),
            peak_bytes: pair.measured.after_peak_bytes.map(rounded),
            when_unix_ms: pair.when_unix_ms,
        }
    }
}

impl Combination {
    fn of(prediction: &Prediction) -> Combination {
        Combination {
            names: prediction.names.clone(),
            title: prediction.title.clone(),
            time_ns: whole_range(prediction.time_ns),
            speedup: prediction.speedup().into(),
            peak_bytes: prediction.peak_bytes.map(whole_range),
        }
    }
}

impl Refusal {
    fn of(refused: &Inapplicable) -> Refusal {
        Refusal { name: refused.name, title: refused.title, why: sentence(&refused.why) }
    }
}

impl Recompute {
    fn of(point: &Point, profile: &Profile) -> Recompute {
        Recompute {
            time_ns: rounded(point.time_ns),
            peak_bytes: rounded(point.peak_bytes),
            lines: places(profile, &point.lines),
            is_an_edit: point.is_an_edit,
        }
    }
}

fn places(profile: &Profile, lines: &[(FileId, u32)]) -> Vec<Place> {
    let places = lines.iter().filter_map(|(file, line)| Place::of(profile, *file, *line));
    places.take(MAX_ENTRIES).collect()
}

fn sentence(text: &str) -> String {
    shorten(&clean(text), 500)
}

/// Rounds to whole nanoseconds or bytes.
fn rounded(value: f64) -> f64 {
    finite(value).round()
}

fn whole_range(range: range::Range) -> Range {
    range::Range { low: range.low.round(), value: range.value.round(), high: range.high.round() }
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_optimize::accuracy::Sides;
    use ridgeline_optimize::ranking;

    fn known() -> WhatIfs {
        let prediction = Prediction {
            names: vec!["zero-grad-none".to_owned()],
            title: "Set gradients to None instead of zero".to_owned(),
            before_ns: 2e6,
            time_ns: range::Range { low: 0.8e6, value: 1e6, high: 1.6e6 },
            samples_factor: 1.0,
            // A file that the profile does not have.
            lines: vec![(FileId(7), 3)],
            ..Prediction::default()
        };
        let what_ifs =
            ranking::WhatIfs { predictions: vec![prediction], ..ranking::WhatIfs::default() };
        let study = Study {
            batch_size: Some(4),
            iteration_ns: 2e6,
            replay_error: f64::NAN,
            what_ifs,
            ..Study::default()
        };
        let side =
            |before_ns: f64, after_ns: f64| Sides { before_ns, after_ns, ..Sides::default() };
        let pair = Pair {
            name: "zero-grad-none".to_owned(),
            when_unix_ms: 5,
            predicted: side(2e6, 1e6),
            measured: side(4e6, 2.5e6),
            ..Pair::default()
        };
        WhatIfs { study: Some(Arc::new(study)), pairs: vec![pair], ..WhatIfs::default() }
    }

    fn shown(what_ifs: &WhatIfs) -> serde_json::Value {
        serde_json::to_value(WhatIfsEntry::of(what_ifs, &Profile::default())).expect("JSON")
    }

    #[test]
    fn a_prediction_with_its_measurement() {
        let shown = shown(&known());
        let row = &shown["rows"][0];
        assert_eq!(row["speedup"]["value"], 2.0);
        assert_eq!(row["speedup"]["low"], 1.25);
        assert_eq!(row["samples_per_second"]["value"], 4000.0);
        assert_eq!(row["measured"]["speedup"], 1.6);
        assert_eq!(row["measured"]["time_ns"], 2.5e6);
        assert_eq!(row["lines"], serde_json::json!([]));
        assert_eq!(shown["accuracy"]["pairs"], 1);
        let error = shown["accuracy"]["largest_error"].as_f64().expect("a number");
        assert!((error - 0.2).abs() < 1e-9, "{error}");
        assert_eq!(shown["replay_error"], serde_json::Value::Null);
    }

    #[test]
    fn an_impossible_edit_has_a_reason() {
        let mut what_ifs = known();
        assert_eq!(shown(&what_ifs)["rows"][0]["edit"]["possible"], false);
        what_ifs.edits = vec![("zero-grad-none".to_owned(), Err("it is there already".to_owned()))];
        assert_eq!(shown(&what_ifs)["rows"][0]["edit"]["why"], "it is there already");
        what_ifs.edits = vec![("zero-grad-none".to_owned(), Ok(()))];
        assert_eq!(shown(&what_ifs)["rows"][0]["edit"]["possible"], true);
    }

    #[test]
    fn before_the_predictions_are_computed() {
        let message = Some("Estimating speedups".to_owned());
        let shown = shown(&WhatIfs { message, ..WhatIfs::default() });
        assert_eq!(shown["rows"], serde_json::json!([]));
        assert_eq!(shown["before"], serde_json::Value::Null);
        assert_eq!(shown["accuracy"], serde_json::Value::Null);
    }
}
