//! Changes since an earlier run, and whether they exceed noise, as `compare` reports them.

use serde::Serialize;

use super::{PanelInput, RunRecord, name};
use ridgeline_base::units;
use ridgeline_compare::change::{Measure, Verdict as CompareVerdict};
use ridgeline_compare::run::Run;
use ridgeline_compare::{Comparison, compare};
use ridgeline_profile::Profile;

/// A change since an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// `+4%`.
    pub text: String,
    /// The current value divided by the earlier one.
    pub ratio: f64,
    /// Whether it is an improvement.
    pub verdict: Verdict,
}

/// Whether a change makes the program better or worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Better, beyond noise.
    Better,
    /// Worse, beyond noise.
    Worse,
    /// Within noise.
    Same,
    /// Beyond the noise within each run, but with the same code: most likely the machine differed.
    #[serde(rename = "same_code")]
    SameCode,
}

/// The direction in which a number improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// For rates.
    Higher,
    /// For costs.
    Lower,
}

/// The runs that the current one is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Baselines<'a> {
    current: Option<&'a RunRecord>,
    /// The previous run.
    pub last: Option<EarlierRun<'a>>,
    /// The latest earlier run of the text at HEAD.
    pub head: Option<EarlierRun<'a>>,
}

/// An earlier run.
#[derive(Clone, Debug)]
pub(super) struct EarlierRun<'a> {
    pub record: &'a RunRecord,
    /// `None` if the costs of the run are not stored.
    comparison: Option<Comparison>,
}

impl<'a> Baselines<'a> {
    /// Compares as `compare` does. The history is newest first and begins with the run of
    /// `profile`.
    pub(super) fn of(input: &PanelInput<'a>, profile: &Profile) -> Baselines<'a> {
        let Some((current, others)) = input.history.split_first() else {
            return Baselines::default();
        };
        let now = Run::of(profile);
        let earlier = |record: &'a RunRecord, stored: Option<&Run>| EarlierRun {
            record,
            comparison: stored.map(|before| compare(before, &now)),
        };
        let head_unix_ms = profile.since.as_ref().and_then(|since| since.head_unix_ms);
        let head = others.iter().find(|run| Some(run.when_unix_ms) == head_unix_ms);
        Baselines {
            current: Some(current),
            last: others.first().map(|last| earlier(last, input.last)),
            head: head.map(|head| earlier(head, input.head)),
        }
    }

    /// `the run 3 minutes earlier, batch size 16`.
    pub(super) fn describe(&self, run: &RunRecord) -> String {
        let earlier_ms =
            self.current.map_or(0, |now| now.when_unix_ms.saturating_sub(run.when_unix_ms));
        format!("the run {}{}", earlier(earlier_ms), self.differences(run))
    }

    /// `a1b2c3d, batch size 16`: the commit at HEAD, with the differences of its run.
    pub(super) fn describe_head(&self, run: &RunRecord) -> String {
        let head = self.current.and_then(|current| current.commit.as_deref()).unwrap_or_default();
        let commit: String = head.chars().take(7).collect();
        format!("{}{}", name(&commit), self.differences(run))
    }

    /// The differences in batch size, device and number of ranks.
    fn differences(&self, run: &RunRecord) -> String {
        let Some(current) = self.current else { return String::new() };
        let mut text = String::new();
        if run.batch_size != current.batch_size
            && let Some(batch) = run.batch_size
        {
            text.push_str(&format!(", batch size {batch}"));
        }
        if run.device != current.device {
            text.push_str(&format!(", on {}", name(&run.device)));
        }
        // Old records do not have the number of ranks.
        if let Some(ranks) = run.world_size.filter(|_| current.world_size.is_some())
            && run.world_size != current.world_size
        {
            text.push_str(&format!(", on {ranks} rank{}", if ranks == 1 { "" } else { "s" }));
        }
        text
    }
}

impl Change {
    /// Returns the change of a number. `None` if the runs cannot be compared or the change is
    /// unknown.
    pub(super) fn of(
        earlier: Option<&EarlierRun<'_>>,
        number: impl Fn(&Comparison) -> Measure,
    ) -> Option<Change> {
        let comparison = earlier?.comparison.as_ref()?;
        let measure = number(comparison);
        let ratio = measure.ratio.filter(|ratio| *ratio > 0.0)?;
        let verdict = match measure.verdict {
            CompareVerdict::Faster | CompareVerdict::Slower if comparison.is_same_code() => {
                Verdict::SameCode
            }
            CompareVerdict::Faster | CompareVerdict::Smaller => Verdict::Better,
            CompareVerdict::Slower | CompareVerdict::Larger => Verdict::Worse,
            CompareVerdict::WithinNoise => Verdict::Same,
            CompareVerdict::New | CompareVerdict::Gone | CompareVerdict::Unknown => return None,
        };
        Some(Change { text: units::difference(ratio), ratio, verdict })
    }
}

/// Formats a time difference: `3 minutes earlier`.
fn earlier(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (count, unit) = match seconds {
        0..=1 => return "just before".to_owned(),
        2..=119 => (seconds, "seconds"),
        120..=7199 => (seconds / 60, "minutes"),
        7200..=172_799 => (seconds / 3600, "hours"),
        _ => (seconds / 86400, "days"),
    };
    format!("{count} {unit} earlier")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};
    use ridgeline_profile::since::Since;

    const MINUTE: u64 = 60_000;

    /// Returns a run of different code, `minutes` earlier, that took `factor` times as long.
    fn earlier_run(minutes: u64, factor: f64) -> (RunRecord, Run) {
        let (_, profile) = profile(TRAIN);
        let record = RunRecord {
            commit: Some("ffff00001111".to_owned()),
            ..RunRecord::of(&profile, 100 * MINUTE - minutes * MINUTE)
        };
        let mut run = Run::of(&profile);
        run.text = Some("0123456789abcdef".to_owned());
        run.time_ns *= factor;
        run.timed_ns = run.timed_ns.iter().map(|time| time * factor).collect();
        (record, run)
    }

    /// Returns the description of the last run or of the run at HEAD, and the changes of the
    /// headline's numbers.
    fn described_changes(
        (record, run): &(RunRecord, Run),
        head: bool,
    ) -> (Option<String>, Vec<(String, Verdict)>) {
        let (_, mut profile) = profile(TRAIN);
        let head_unix_ms = head.then_some(record.when_unix_ms);
        profile.since = Some(Arc::new(Since { head_unix_ms, ..Since::default() }));
        let commit = Some("a1b2c3d4e5".to_owned());
        let now = RunRecord { commit, ..RunRecord::of(&profile, 100 * MINUTE) };
        // If HEAD is requested, the last run is a different one.
        let between = RunRecord { when_unix_ms: 99 * MINUTE, ..now.clone() };
        let history = match head {
            true => vec![now, between, record.clone()],
            false => vec![now, record.clone()],
        };
        let stored = Some(run);
        let input = PanelInput {
            history: &history,
            last: stored.filter(|_| !head),
            head: stored.filter(|_| head),
            ..PanelInput::default()
        };
        let baselines = Baselines::of(&input, &profile);
        let shown = if head { baselines.head.as_ref() } else { baselines.last.as_ref() };
        let described = shown.map(|earlier| match head {
            true => baselines.describe_head(earlier.record),
            false => baselines.describe(earlier.record),
        });
        let numbers: [fn(&Comparison) -> Measure; 3] =
            [|found| found.throughput, |found| found.time, |found| found.peak];
        let changes = numbers.into_iter().filter_map(|number| Change::of(shown, number));
        (described, changes.map(|change| (change.text, change.verdict)).collect())
    }

    fn changes(expected: [(&str, Verdict); 3]) -> Vec<(String, Verdict)> {
        expected.map(|(text, verdict)| (text.to_owned(), verdict)).to_vec()
    }

    #[test]
    fn changes_agree_with_compare() {
        let (described, found) = described_changes(&earlier_run(3, 2.0), false);
        assert_eq!(described.as_deref(), Some("the run 3 minutes earlier"));
        let (better, same) = (Verdict::Better, Verdict::Same);
        assert_eq!(found, changes([("+100%", better), ("−50%", better), ("±0%", same)]));
        // Within the noise between two runs of one text.
        let (_, found) = described_changes(&earlier_run(3, 0.97), false);
        assert_eq!(found, changes([("−3%", same), ("+3%", same), ("±0%", same)]));
    }

    #[test]
    fn the_same_code_is_never_better() {
        let (record, mut run) = earlier_run(3, 2.0);
        run.text = Run::of(&profile(TRAIN).1).text;
        assert!(run.text.is_some());
        let (_, found) = described_changes(&(record, run), false);
        let (machine, same) = (Verdict::SameCode, Verdict::Same);
        assert_eq!(found, changes([("+100%", machine), ("−50%", machine), ("±0%", same)]));
    }

    #[test]
    fn the_run_at_head_is_named_by_the_current_commit() {
        let (described, found) = described_changes(&earlier_run(3, 0.5), true);
        assert_eq!(described.as_deref(), Some("a1b2c3d"));
        assert_eq!(found[1], ("+100%".to_owned(), Verdict::Worse));
    }

    #[test]
    fn only_throughput_is_compared_across_batch_sizes() {
        let (mut record, mut run) = earlier_run(0, 0.5);
        (record.batch_size, run.batch_size) = (Some(16), Some(16));
        let (described, found) = described_changes(&(record, run), false);
        assert_eq!(described.as_deref(), Some("the run just before, batch size 16"));
        assert_eq!(found, [("±0%".to_owned(), Verdict::Same)]);
    }

    #[test]
    fn a_different_device_and_number_of_ranks_are_named() {
        let (mut record, mut run) = earlier_run(3, 2.0);
        record.device = "NVIDIA A100".to_owned();
        run.device.clone_from(&record.device);
        (record.world_size, run.world_size) = (Some(4), Some(4));
        let (described, found) = described_changes(&(record, run), false);
        let expected = "the run 3 minutes earlier, on NVIDIA A100, on 4 ranks";
        assert_eq!((described.as_deref(), found.len()), (Some(expected), 0));
    }

    #[test]
    fn runs_without_stored_costs_are_not_compared() {
        let (_, profile) = profile(TRAIN);
        let history = [earlier_run(0, 1.0).0, earlier_run(3, 1.0).0];
        let input = PanelInput { history: &history, ..PanelInput::default() };
        let baselines = Baselines::of(&input, &profile);
        assert!(baselines.last.is_some() && baselines.head.is_none());
        assert_eq!(Change::of(baselines.last.as_ref(), |found| found.time), None);
        assert!(Baselines::of(&PanelInput::default(), &profile).last.is_none());
    }

    #[test]
    fn time_differences_have_one_unit() {
        let described_changes = [0, 90_000, 150_000, 7_200_000, 200_000_000].map(earlier);
        assert_eq!(
            described_changes,
            [
                "just before",
                "90 seconds earlier",
                "2 minutes earlier",
                "2 hours earlier",
                "2 days earlier"
            ]
        );
    }
}
