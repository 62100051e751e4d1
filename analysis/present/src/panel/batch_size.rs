//! The batch-size sweep: `predictions.batch_size` of the document.

use serde::Serialize;

use super::{Place, finite, name};
use ridgeline_base::printable::{clean, shorten};
use ridgeline_operators::range;
use ridgeline_predict::batch_size::{Capacity, Curve, CurvePoint, Evidence, IntegerRange};
use ridgeline_profile::{FileId, Profile};

/// The measurements and estimates at other batch sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSizes {
    /// Whether more measurements are running.
    pub is_measuring: bool,
    /// Why there is no prediction, or what is unknown: a sentence.
    pub message: Option<String>,
    /// The batch size in the current text, or that of the run if the text does not state it.
    pub current: u64,
    /// The place where it is set.
    pub site: Option<Site>,
    /// Why it cannot be edited.
    pub refusal: Option<String>,
    /// Runs and estimates.
    pub evidence: Evidence,
    /// The memory of the device.
    pub capacity: Option<Capacity>,
}

/// The place where the batch size is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// `batch_size=32`.
    pub text: String,
    /// Relative to the project's root.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
    /// A note for the user.
    pub note: Option<String>,
}

/// `predictions.batch_size`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct BatchSizeEntry {
    state: &'static str,
    message: Option<String>,
    current: u64,
    site: Option<SiteEntry>,
    refusal: Option<String>,
    points: Vec<Point>,
    capacity_bytes: Option<u64>,
    largest: Option<WholeRange>,
    saturation: Option<WholeRange>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct SiteEntry {
    text: String,
    place: Option<Place>,
    note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Point {
    batch: u64,
    time_ns: Option<Range>,
    samples_per_second: Option<Range>,
    peak_bytes: Option<Range>,
    measured: bool,
    fits: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Range {
    low: f64,
    value: f64,
    high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct WholeRange {
    low: u64,
    value: u64,
    high: u64,
}

impl From<range::Range> for Range {
    fn from(range: range::Range) -> Range {
        Range { low: finite(range.low), value: finite(range.value), high: finite(range.high) }
    }
}

impl From<IntegerRange> for WholeRange {
    fn from(whole: IntegerRange) -> WholeRange {
        WholeRange { low: whole.low, value: whole.value, high: whole.high }
    }
}

impl BatchSizeEntry {
    pub(super) fn of(sizes: &BatchSizes, profile: Option<&Profile>) -> BatchSizeEntry {
        let sentence = |text: &String| shorten(&clean(text), 500);
        let curve = Curve::fit(&sizes.evidence);
        let largest = match (&curve, sizes.capacity) {
            (Ok(curve), Some(capacity)) => curve.largest(capacity),
            _ => None,
        };
        let saturation = curve
            .as_ref()
            .ok()
            .and_then(|curve| curve.saturation(largest.map(|largest| largest.value)));
        let points = curve.as_ref().map(|curve| curve.points(sizes.current, sizes.capacity));
        let why = curve.as_ref().err().map(ToString::to_string);
        BatchSizeEntry {
            state: match (sizes.is_measuring, curve.is_ok()) {
                (true, _) => "measuring",
                (false, true) => "ready",
                (false, false) => "unavailable",
            },
            message: sizes.message.as_ref().map(sentence).or(why.filter(|_| !sizes.is_measuring)),
            current: sizes.current,
            site: sizes.site.as_ref().map(|site| SiteEntry::of(site, profile)),
            refusal: sizes.refusal.as_ref().map(sentence),
            points: points.unwrap_or_default().iter().map(Point::of).collect(),
            capacity_bytes: sizes.capacity.map(Capacity::available_bytes),
            largest: largest.map(Into::into),
            saturation: saturation.map(Into::into),
        }
    }
}

impl SiteEntry {
    fn of(site: &Site, profile: Option<&Profile>) -> SiteEntry {
        // A configuration file is not among the files that ran, so there is no place to jump to.
        let place = profile.and_then(|profile| {
            let file = profile.files.iter().position(|file| file.path == site.file)?;
            Place::of(profile, FileId(u32::try_from(file).ok()?), site.line)
        });
        SiteEntry { text: name(&site.text), place, note: site.note.as_deref().map(name) }
    }
}

impl Point {
    fn of(point: &CurvePoint) -> Point {
        Point {
            batch: point.batch,
            time_ns: point.time_ns.map(Into::into),
            samples_per_second: point.samples_per_second.map(Into::into),
            peak_bytes: point.peak_bytes.map(Into::into),
            measured: point.measured,
            fits: point.fits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_predict::batch_size::Run;

    fn sizes() -> BatchSizes {
        let run = |batch: u64| Run {
            batch,
            samples: batch,
            timed_ns: vec![1e6 + 1e5 * batch as f64],
            peak_bytes: Some(1_000_000 + 1_000 * batch),
            ..Run::default()
        };
        BatchSizes {
            current: 32,
            evidence: Evidence { runs: [32, 48, 24].map(run).into(), ..Evidence::default() },
            capacity: Some(Capacity { bytes: 1_100_000, taken: 0 }),
            ..BatchSizes::default()
        }
    }

    #[test]
    fn a_curve_with_its_largest_batch() {
        let shown = serde_json::to_value(BatchSizeEntry::of(&sizes(), None)).expect("JSON");
        assert_eq!(shown["state"], "ready");
        assert_eq!(shown["largest"]["value"], 100);
        assert_eq!(shown["capacity_bytes"], 1_100_000);
        let points = shown["points"].as_array().expect("a list");
        let at = |batch: u64| points.iter().find(|point| point["batch"] == batch);
        assert_eq!(at(48).expect("a run")["measured"], true);
        assert_eq!(at(100).expect("the largest")["fits"], true);
    }

    #[test]
    fn a_single_run_allows_no_prediction() {
        let mut sizes = sizes();
        sizes.evidence.runs.truncate(1);
        let shown = serde_json::to_value(BatchSizeEntry::of(&sizes, None)).expect("JSON");
        assert_eq!(shown["state"], "unavailable");
        assert_eq!(
            shown["message"],
            "only one batch size was measured, which does not allow a prediction for others"
        );
        sizes.is_measuring = true;
        let shown = serde_json::to_value(BatchSizeEntry::of(&sizes, None)).expect("JSON");
        assert_eq!((&shown["state"], shown["message"].is_null()), (&"measuring".into(), true));
    }
}
