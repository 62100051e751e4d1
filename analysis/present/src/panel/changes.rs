//! What changed since an earlier run, and whether that is more than noise: as `compare` tells it.

use serde::Serialize;

use super::{PanelInput, RunRecord, name};
use ridgeline_base::units;
use ridgeline_compare::change::{Measure, Verdict as Told};
use ridgeline_compare::run::Run;
use ridgeline_compare::{Comparison, compare};
use ridgeline_profile::Profile;

/// Since an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// `+4%`.
    pub text: String,
    /// Now over then.
    pub ratio: f64,
    /// What to think of it.
    pub verdict: Verdict,
}

/// What a change means for a person who wants a fast program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// For the better, beyond noise.
    Better,
    /// For the worse, beyond noise.
    Worse,
    /// Within noise.
    Same,
    /// Beyond the noise within each run, but the same code ran: most likely the machine differed.
    #[serde(rename = "same_code")]
    SameCode,
}

/// Which way a number should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A rate.
    Higher,
    /// A cost.
    Lower,
}

/// The runs that the current one is compared with.
#[derive(Clone, Debug, Default)]
pub(super) struct Against<'a> {
    current: Option<&'a RunRecord>,
    /// The run before.
    pub last: Option<Earlier<'a>>,
    /// The newest one before it of the text of the commit that HEAD was.
    pub head: Option<Earlier<'a>>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Earlier<'a> {
    pub record: &'a RunRecord,
    /// Nothing where what it cost is not kept.
    comparison: Option<Comparison>,
}

impl<'a> Against<'a> {
    /// As `compare` does it. The history is newest first and begins with the profile's own run.
    pub(super) fn of(input: &PanelInput<'a>, profile: &Profile) -> Against<'a> {
        let Some((current, others)) = input.history.split_first() else {
            return Against::default();
        };
        let now = Run::of(profile);
        let earlier = |record: &'a RunRecord, kept: Option<&Run>| Earlier {
            record,
            comparison: kept.map(|before| compare(before, &now)),
        };
        let head_unix_ms = profile.since.as_ref().and_then(|since| since.head_unix_ms);
        let head = others.iter().find(|run| Some(run.when_unix_ms) == head_unix_ms);
        Against {
            current: Some(current),
            last: others.first().map(|last| earlier(last, input.last)),
            head: head.map(|head| earlier(head, input.head)),
        }
    }

    /// `the run 3 minutes earlier, batch of 16`.
    pub(super) fn describe(&self, run: &RunRecord) -> String {
        let earlier_ms =
            self.current.map_or(0, |now| now.when_unix_ms.saturating_sub(run.when_unix_ms));
        format!("the run {}{}", earlier(earlier_ms), self.differences(run))
    }

    /// `a1b2c3d, batch of 16`: the commit that HEAD was, with what its run did otherwise.
    pub(super) fn describe_head(&self, run: &RunRecord) -> String {
        let head = self.current.and_then(|current| current.commit.as_deref()).unwrap_or_default();
        let commit: String = head.chars().take(7).collect();
        format!("{}{}", name(&commit), self.differences(run))
    }

    /// What makes the two runs unlike.
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
        // Whether the two had as many ranks is not known of a run of before it was kept.
        if let Some(ranks) = run.world_size.filter(|_| current.world_size.is_some())
            && run.world_size != current.world_size
        {
            text.push_str(&format!(", on {ranks} rank{}", if ranks == 1 { "" } else { "s" }));
        }
        text
    }
}

impl Change {
    /// Of a number of both runs; nothing where the two cannot be compared, or nothing can be told.
    pub(super) fn of(
        earlier: Option<&Earlier<'_>>,
        number: impl Fn(&Comparison) -> Measure,
    ) -> Option<Change> {
        let comparison = earlier?.comparison.as_ref()?;
        let measure = number(comparison);
        let ratio = measure.ratio.filter(|ratio| *ratio > 0.0)?;
        let verdict = match measure.verdict {
            Told::Faster | Told::Slower if comparison.is_same_code() => Verdict::SameCode,
            Told::Faster | Told::Smaller => Verdict::Better,
            Told::Slower | Told::Larger => Verdict::Worse,
            Told::WithinNoise => Verdict::Same,
            Told::New | Told::Gone | Told::Unknown => return None,
        };
        Some(Change { text: units::difference(ratio), ratio, verdict })
    }
}

/// `3 minutes earlier`.
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

    /// A run of other code, some minutes earlier, that took so many times as long.
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

    /// What the panel says of the last run and of HEAD's, of each of the headline's numbers.
    fn told(
        (record, run): &(RunRecord, Run),
        head: bool,
    ) -> (Option<String>, Vec<(String, Verdict)>) {
        let (_, mut profile) = profile(TRAIN);
        let head_unix_ms = head.then_some(record.when_unix_ms);
        profile.since = Some(Arc::new(Since { head_unix_ms, ..Since::default() }));
        let commit = Some("a1b2c3d4e5".to_owned());
        let now = RunRecord { commit, ..RunRecord::of(&profile, 100 * MINUTE) };
        // The one between is the last one where HEAD's is asked for.
        let between = RunRecord { when_unix_ms: 99 * MINUTE, ..now.clone() };
        let history = match head {
            true => vec![now, between, record.clone()],
            false => vec![now, record.clone()],
        };
        let kept = Some(run);
        let input = PanelInput {
            history: &history,
            last: kept.filter(|_| !head),
            head: kept.filter(|_| head),
            ..PanelInput::default()
        };
        let against = Against::of(&input, &profile);
        let shown = if head { against.head.as_ref() } else { against.last.as_ref() };
        let described = shown.map(|earlier| match head {
            true => against.describe_head(earlier.record),
            false => against.describe(earlier.record),
        });
        let numbers: [fn(&Comparison) -> Measure; 3] =
            [|found| found.throughput, |found| found.time, |found| found.peak];
        let changes = numbers.into_iter().filter_map(|number| Change::of(shown, number));
        (described, changes.map(|change| (change.text, change.verdict)).collect())
    }

    fn changes(of: [(&str, Verdict); 3]) -> Vec<(String, Verdict)> {
        of.map(|(text, verdict)| (text.to_owned(), verdict)).to_vec()
    }

    #[test]
    fn a_change_is_what_compare_says() {
        let (described, found) = told(&earlier_run(3, 2.0), false);
        assert_eq!(described.as_deref(), Some("the run 3 minutes earlier"));
        let (better, same) = (Verdict::Better, Verdict::Same);
        assert_eq!(found, changes([("+100%", better), ("−50%", better), ("±0%", same)]));
        // Less than two runs of one text differ by.
        let (_, found) = told(&earlier_run(3, 0.97), false);
        assert_eq!(found, changes([("−3%", same), ("+3%", same), ("±0%", same)]));
    }

    #[test]
    fn the_same_code_is_never_better() {
        let (record, mut run) = earlier_run(3, 2.0);
        run.text = Run::of(&profile(TRAIN).1).text;
        assert!(run.text.is_some());
        let (_, found) = told(&(record, run), false);
        let (machine, same) = (Verdict::SameCode, Verdict::Same);
        assert_eq!(found, changes([("+100%", machine), ("−50%", machine), ("±0%", same)]));
    }

    #[test]
    fn heads_run_has_its_text_and_maybe_the_name_of_an_older_commit() {
        let (described, found) = told(&earlier_run(3, 0.5), true);
        assert_eq!(described.as_deref(), Some("a1b2c3d"));
        assert_eq!(found[1], ("+100%".to_owned(), Verdict::Worse));
    }

    #[test]
    fn another_batch_size_leaves_only_throughput_to_compare() {
        let (mut record, mut run) = earlier_run(0, 0.5);
        (record.batch_size, run.batch_size) = (Some(16), Some(16));
        let (described, found) = told(&(record, run), false);
        assert_eq!(described.as_deref(), Some("the run just before, batch size 16"));
        assert_eq!(found, [("±0%".to_owned(), Verdict::Same)]);
    }

    #[test]
    fn another_device_and_another_number_of_ranks_are_named() {
        let (mut record, mut run) = earlier_run(3, 2.0);
        record.device = "NVIDIA A100".to_owned();
        run.device.clone_from(&record.device);
        (record.world_size, run.world_size) = (Some(4), Some(4));
        let (described, found) = told(&(record, run), false);
        let expected = "the run 3 minutes earlier, on NVIDIA A100, on 4 ranks";
        assert_eq!((described.as_deref(), found.len()), (Some(expected), 0));
    }

    #[test]
    fn what_is_not_kept_is_not_compared() {
        let (_, profile) = profile(TRAIN);
        let history = [earlier_run(0, 1.0).0, earlier_run(3, 1.0).0];
        let input = PanelInput { history: &history, ..PanelInput::default() };
        let against = Against::of(&input, &profile);
        assert!(against.last.is_some() && against.head.is_none());
        assert_eq!(Change::of(against.last.as_ref(), |found| found.time), None);
        assert!(Against::of(&PanelInput::default(), &profile).last.is_none());
    }

    #[test]
    fn how_long_ago_is_told_in_one_unit() {
        let told = [0, 90_000, 150_000, 7_200_000, 200_000_000].map(earlier);
        assert_eq!(
            told,
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
