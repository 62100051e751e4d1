//! What changed since an earlier run, and whether that is more than noise.

use serde::Serialize;

use super::{RunRecord, name};
use crate::compare::{MANY, NOISE, NOISE_OF_FEW, NOISE_OF_MEMORY};
use crate::units;

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
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Against<'a> {
    current: Option<&'a RunRecord>,
    /// The run before.
    pub last: Option<&'a RunRecord>,
    /// The newest other run of exactly the commit that HEAD was when the current one ran.
    pub head: Option<&'a RunRecord>,
}

impl<'a> Against<'a> {
    /// The history is newest first and begins with the current run.
    pub fn of(history: &'a [RunRecord]) -> Against<'a> {
        let Some((current, others)) = history.split_first() else { return Against::default() };
        let head = current.commit.as_ref().and_then(|head| {
            others.iter().find(|run| run.clean && run.commit.as_ref() == Some(head))
        });
        Against { current: Some(current), last: others.first(), head }
    }

    /// `the run 3 minutes earlier, batch of 16`.
    pub fn describe(&self, run: &RunRecord) -> String {
        let earlier_ms =
            self.current.map_or(0, |now| now.when_unix_ms.saturating_sub(run.when_unix_ms));
        format!("the run {}{}", earlier(earlier_ms), self.differences(run))
    }

    /// `a1b2c3d, batch of 16`.
    pub fn describe_head(&self, run: &RunRecord) -> String {
        let commit: String = run.commit.iter().flat_map(|commit| commit.chars()).take(7).collect();
        format!("{}{}", name(&commit), self.differences(run))
    }

    /// What makes the two runs unlike.
    fn differences(&self, run: &RunRecord) -> String {
        let Some(current) = self.current else { return String::new() };
        let mut text = String::new();
        if run.batch_size != current.batch_size
            && let Some(batch) = run.batch_size
        {
            text.push_str(&format!(", batch of {batch}"));
        }
        if run.device != current.device {
            text.push_str(&format!(", on {}", name(&run.device)));
        }
        if let Some(ranks) = run.world_size.filter(|_| has_other_ranks(run, current)) {
            text.push_str(&format!(", on {ranks} rank{}", if ranks == 1 { "" } else { "s" }));
        }
        text
    }

    /// Samples per second can be compared whatever the batch: that is what they are for.
    pub fn throughput(&self, run: Option<&RunRecord>, spread: f64) -> Option<Change> {
        let (current, run) = (self.current?, run?);
        if has_other_ranks(run, current) {
            return None;
        }
        let (now, then) = (current.samples_per_second?, run.samples_per_second?);
        change(now, then, spread, Better::Higher)
    }

    /// Time of an iteration, where an iteration is as much work on the same device.
    pub fn time(&self, run: Option<&RunRecord>, spread: f64) -> Option<Change> {
        let run = self.alike(run)?;
        change(self.current?.time_ns, run.time_ns, spread, Better::Lower)
    }

    /// Memory at the peak, where an iteration is as much work on the same device.
    pub fn memory(&self, run: Option<&RunRecord>) -> Option<Change> {
        let run = self.alike(run)?;
        let (now, then) = (self.current?.peak_bytes as f64, run.peak_bytes as f64);
        change(now, then, NOISE_OF_MEMORY, Better::Lower)
    }

    fn alike(&self, run: Option<&'a RunRecord>) -> Option<&'a RunRecord> {
        let current = self.current?;
        run.filter(|run| run.batch_size == current.batch_size && run.device == current.device)
            .filter(|run| !has_other_ranks(run, current))
    }
}

/// Whether the two had as many ranks is not known of a run of before it was kept.
fn has_other_ranks(one: &RunRecord, other: &RunRecord) -> bool {
    one.world_size.zip(other.world_size).is_some_and(|(one, other)| one != other)
}

/// The share by which two runs of the same text may differ: the spread between the quartiles of the
/// unprofiled iterations, as a share of their median. Half of all iterations lie within it, so a
/// median outside of it is no accident of one slow iteration. It is never less than [`NOISE`] or
/// [`NOISE_OF_FEW`], because the iterations of one run share what differs from run to run.
pub(super) fn noise(timed_ns: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = timed_ns.iter().copied().filter(|time| time.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let least = if sorted.len() < MANY { NOISE_OF_FEW } else { NOISE };
    let quarter = |quarters: f64| {
        let at = sorted.len().saturating_sub(1) as f64 * quarters / 4.0;
        let (below, above) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
        Some(below + (above - below) * at.fract())
    };
    let spread = quarter(1.0).zip(quarter(2.0)).zip(quarter(3.0));
    let spread = spread.map(|((lower, middle), upper)| (upper - lower) / middle);
    spread.filter(|spread| spread.is_finite()).map_or(least, |spread| spread.max(least))
}

fn change(now: f64, then: f64, noise: f64, better: Better) -> Option<Change> {
    let ratio = now / then;
    if !ratio.is_finite() || ratio <= 0.0 {
        return None;
    }
    let verdict = match better {
        _ if (ratio - 1.0).abs() <= noise => Verdict::Same,
        Better::Higher if ratio > 1.0 => Verdict::Better,
        Better::Lower if ratio < 1.0 => Verdict::Better,
        Better::Higher | Better::Lower => Verdict::Worse,
    };
    Some(Change { text: units::difference(ratio), ratio, verdict })
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
    use super::*;

    fn run(time_ns: f64, batch_size: u64) -> RunRecord {
        RunRecord {
            when_unix_ms: 1_000_000,
            time_ns,
            samples_per_second: Some(batch_size as f64 / time_ns * 1e9),
            peak_bytes: 1000,
            batch_size: Some(batch_size),
            device: "cpu".to_owned(),
            ..RunRecord::default()
        }
    }

    #[track_caller]
    fn check(then: f64, now: f64, noise: f64, text: &str, verdict: Verdict) {
        let found = change(now, then, noise, Better::Lower).expect("a change");
        assert_eq!((found.text.as_str(), found.verdict), (text, verdict));
    }

    #[test]
    fn what_is_less_than_noise_is_the_same() {
        check(100.0, 101.9, 0.02, "+2%", Verdict::Same);
        check(100.0, 104.0, 0.02, "+4%", Verdict::Worse);
        check(100.0, 96.0, 0.02, "−4%", Verdict::Better);
        check(100.0, 90.0, 0.2, "−10%", Verdict::Same);
        check(100.0, 100.01, 0.02, "±0%", Verdict::Same);
        check(100.0, 1500.0, 0.02, "×15", Verdict::Worse);
    }

    #[test]
    fn without_a_number_before_there_is_no_change() {
        for (now, then) in [(1.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN), (0.0, 1.0), (-1.0, 1.0)] {
            assert_eq!(change(now, then, 0.02, Better::Lower), None);
        }
    }

    #[test]
    fn noise_is_the_spread_of_half_of_the_iterations() {
        assert_eq!(noise(&[]), NOISE_OF_FEW);
        assert_eq!(noise(&[100.0, 100.0, 101.0]), NOISE_OF_FEW);
        assert_eq!(noise(&[80.0, 100.0, 120.0]), 0.2);
        assert_eq!(noise(&[100.0, 100.0, 100.0, 100.0, 900.0]), NOISE);
        assert_eq!(noise(&[90.0, 95.0, 100.0, 105.0, 110.0]), 0.1);
        assert_eq!(noise(&[f64::NAN, 0.0, 0.0, 0.0]), NOISE_OF_FEW);
    }

    #[test]
    fn another_batch_size_leaves_only_throughput_to_compare() {
        let history = [run(200.0, 32), run(100.0, 16)];
        let against = Against::of(&history);
        assert_eq!(against.time(against.last, 0.02), None);
        assert_eq!(against.memory(against.last), None);
        let throughput = against.throughput(against.last, 0.02).expect("a change");
        assert_eq!(throughput.verdict, Verdict::Same);
        assert_eq!(against.describe(&history[1]), "the run just before, batch of 16");
    }

    #[test]
    fn another_device_is_named() {
        let mut before = run(100.0, 32);
        before.device = "NVIDIA H200".to_owned();
        before.when_unix_ms -= 200_000;
        let history = [run(200.0, 32), before];
        let against = Against::of(&history);
        assert_eq!(against.time(against.last, 0.02), None);
        assert_eq!(against.describe(&history[1]), "the run 3 minutes earlier, on NVIDIA H200");
    }

    #[test]
    fn heads_run_is_the_newest_other_one_of_that_very_text() {
        let of = |commit: &str, clean: bool, time_ns: f64| RunRecord {
            commit: Some(commit.to_owned()),
            clean,
            ..run(time_ns, 32)
        };
        let history = [
            of("a1b2c3d4e5", true, 1.0),
            of("a1b2c3d4e5", false, 2.0),
            of("f", true, 3.0),
            of("a1b2c3d4e5", true, 4.0),
            of("a1b2c3d4e5", true, 5.0),
        ];
        let against = Against::of(&history);
        assert_eq!(against.last.map(|run| run.time_ns), Some(2.0));
        assert_eq!(against.head.map(|run| run.time_ns), Some(4.0));
        assert_eq!(against.describe_head(&history[3]), "a1b2c3d");
        assert!(Against::of(&[run(1.0, 1), run(1.0, 1)]).head.is_none());
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
