//! The bottleneck of an iteration, as text and as JSON.

use serde::Serialize;

use super::explained::{finite, milliseconds};
use super::share::share_of;
use ridgeline_base::printable::{clean, shorten};
use ridgeline_base::units;
use ridgeline_profile::bottleneck::{Bottleneck, Cause, Saving, Verdict};
use ridgeline_profile::{FileId, Profile};

/// Savings below this share of the iteration are not shown.
const MIN_SHARE: f64 = 0.01;
/// Other savings are listed from this fraction of the largest saving on, ...
const OTHER_MIN_OF_LARGEST: f64 = 0.4;
/// ... or from this share of the iteration on.
const OTHER_MIN_SHARE: f64 = 0.1;
/// Idle time without a cause is reported from this share of the iteration on.
const MIN_UNEXPLAINED_IDLE: f64 = 0.2;
/// A line that accounts for this fraction of a saving is named in the verdict.
const MAIN_LINE_MIN: f64 = 0.3;

/// The smallest share of work launched before the iteration that the verdict mentions.
const EARLIER_MIN_SHARE: f64 = 0.05;

/// What the savings mean.
pub const SAVINGS_NOTE: &str = "the most that removing only this cause could save; savings overlap";

/// The label of a cause.
pub fn label(cause: Cause, on_gpu: bool) -> &'static str {
    match (cause, on_gpu) {
        (Cause::Compute, true) => "compute-bound kernels",
        (Cause::Compute, false) => "compute-bound ops",
        (Cause::MemoryBandwidth, true) => "bandwidth-bound kernels",
        (Cause::MemoryBandwidth, false) => "bandwidth-bound ops",
        (Cause::Kernels, true) => "kernels, limit unknown",
        (Cause::Kernels, false) => "ops, limit unknown",
        (Cause::Operators, _) => "overhead-bound ops",
        (Cause::Launches, _) => "launch overhead",
        (Cause::Synchronization, _) => "synchronization",
        (Cause::DataLoading, _) => "data loading",
        (Cause::HostCopies, _) => "host-device copies",
        (Cause::Communication, true) => "exposed communication",
        (Cause::Communication, false) => "waiting for other ranks",
        (Cause::HostCode, true) => "Python and CPU code",
        (Cause::HostCode, false) => "Python",
        (Cause::Host, _) => "all CPU overhead",
    }
}

/// The change on a GPU that would give the saving: `Removing launch overhead`.
fn change(cause: Cause) -> &'static str {
    match cause {
        Cause::Compute => "Faster compute-bound kernels",
        Cause::MemoryBandwidth => "Faster bandwidth-bound kernels",
        Cause::Kernels => "Faster kernels",
        Cause::Operators => "Faster ops",
        Cause::Launches => "Removing launch overhead",
        Cause::Synchronization => "Removing synchronization",
        Cause::DataLoading => "Faster data loading",
        Cause::HostCopies => "Removing host-device copies",
        Cause::Communication => "Hiding communication",
        Cause::HostCode => "Faster Python and CPU code",
        Cause::Host => "Removing all CPU overhead",
    }
}

/// The verdict on a CPU: `Python-bound: 62% in Python between ops`. One thread does one thing at a
/// time, so the time spent on a cause is the time that removing it would save.
fn cpu_verdict(cause: Cause, share: &str) -> String {
    match cause {
        Cause::Compute => format!("Compute-bound: {share} in ops limited by compute"),
        Cause::MemoryBandwidth => {
            format!("Bandwidth-bound: {share} in ops limited by memory bandwidth")
        }
        Cause::Kernels => format!("Bottleneck unknown: {share} in ops of unknown cost"),
        Cause::Operators => {
            format!("Overhead-bound: {share} in ops that reach neither peak compute nor bandwidth")
        }
        Cause::DataLoading => format!("Input-bound: {share} waiting for data"),
        Cause::Communication => format!("Communication-bound: {share} waiting for other ranks"),
        Cause::HostCode => format!("Python-bound: {share} in Python between ops"),
        other => format!("{} would save at most {share}", change(other)),
    }
}

/// `GPU busy 92%, including 29% with work launched before the iteration. `
fn busy(bottleneck: &Bottleneck) -> Option<String> {
    let busy = units::percent(bottleneck.gpu_busy?);
    let earlier_share = share_of(bottleneck.earlier_ns, bottleneck.iteration_ns);
    Some(if earlier_share < EARLIER_MIN_SHARE {
        format!("GPU busy {busy}. ")
    } else {
        let earlier = units::percent(earlier_share);
        format!("GPU busy {busy}, including {earlier} with work launched before the iteration. ")
    })
}

/// `GPU busy 84%. Removing launch overhead would save at most 14%, mostly in train.py:31`.
pub fn verdict(bottleneck: &Bottleneck, profile: &Profile) -> String {
    let busy = busy(bottleneck).unwrap_or_default();
    let saving = match bottleneck.verdict() {
        Verdict::Cause(saving) => saving,
        Verdict::NoneDominates => {
            let largest = bottleneck.savings.first().map_or(0.0, |saving| saving.share);
            let largest = units::percent(largest);
            let unexplained = unexplained_idle(bottleneck);
            return format!(
                "{busy}No single bottleneck: no single cause accounts for more than \
                {largest}{unexplained}"
            );
        }
        Verdict::Unknown => {
            let off = units::percent(bottleneck.untrusted.unwrap_or_default());
            return format!("Bottleneck unknown: the simulated iteration is off by {off}");
        }
    };
    let share = units::percent(saving.share);
    let mut text = match bottleneck.gpu_busy {
        Some(_) => format!("{busy}{} would save at most {share}", change(saving.cause)),
        None => cpu_verdict(saving.cause, &share),
    };
    match saving.cause {
        Cause::Kernels if bottleneck.gpu_busy.is_some() => {
            text += "; whether compute- or bandwidth-bound is unknown"
        }
        Cause::Host => {
            let parts = bottleneck.savings.iter().filter(|part| part.cause.is_of_host());
            let largest = parts.map(|part| part.share).fold(0.0, f64::max);
            text += &format!(", no single part more than {}", units::percent(largest));
        }
        _ => {}
    }
    if let Some(place) = main_line(saving, profile) {
        text += &format!(", mostly in {place}");
    }
    text + &unexplained_idle(bottleneck)
}

/// The idle time that no cause explains, if it is much: waits that the trace does not contain.
fn unexplained_idle(bottleneck: &Bottleneck) -> String {
    let of_idle = [Cause::Host, Cause::HostCopies, Cause::Communication];
    let explained: f64 = of_idle.into_iter().map(|cause| bottleneck.share(cause)).sum();
    let idle = bottleneck.gpu_busy.map_or(0.0, |busy| 1.0 - busy - explained);
    if idle < MIN_UNEXPLAINED_IDLE {
        return String::new();
    }
    format!("; the trace does not explain {} in which the GPU is idle", units::percent(idle))
}

/// The other savings worth showing: `launch overhead 20% · data loading 12%`. Leaves out those far
/// below the largest.
pub fn others(bottleneck: &Bottleneck) -> String {
    let on_gpu = bottleneck.gpu_busy.is_some();
    let named = match bottleneck.verdict() {
        Verdict::Cause(saving) => Some(saving.cause),
        _ => None,
    };
    let largest = bottleneck.savings.first().map_or(0.0, |saving| saving.share);
    let worth: Vec<String> = shown_savings(bottleneck)
        .filter(|saving| Some(saving.cause) != named && saving.cause != Cause::Host)
        .filter(|saving| saving.share >= (OTHER_MIN_OF_LARGEST * largest).min(OTHER_MIN_SHARE))
        .map(|saving| format!("{} {}", label(saving.cause, on_gpu), units::percent(saving.share)))
        .collect();
    worth.join(" · ")
}

/// The savings worth a row. The saving for the whole host is included only if it exceeds the saving
/// for each of its parts.
pub fn shown_savings(bottleneck: &Bottleneck) -> impl Iterator<Item = &Saving> {
    let host_savings = bottleneck.savings.iter().filter(|saving| saving.cause.is_of_host());
    let largest_host_share = host_savings.map(|saving| saving.share).fold(0.0, f64::max);
    bottleneck.savings.iter().filter(move |saving| {
        let adds = saving.cause != Cause::Host || saving.share >= largest_host_share + MIN_SHARE;
        saving.share >= MIN_SHARE && adds
    })
}

/// The line that accounts for most of a saving, if there is one: `train.py:31`.
fn main_line(saving: &Saving, profile: &Profile) -> Option<String> {
    let ((file, line), time_ns) = saving.lines.first()?;
    let is_most = *time_ns >= MAIN_LINE_MIN * saving.time_ns;
    is_most.then(|| place(profile, *file, *line)).flatten()
}

fn place(profile: &Profile, file: FileId, line: u32) -> Option<String> {
    let file = profile.files.get(file.0 as usize)?;
    Some(format!("{}:{line}", shorten(&clean(&file.path), 60)))
}

/// Where a saving comes from: lines, or operators if no lines are known.
pub fn evidence(saving: &Saving, profile: &Profile) -> String {
    let part = |time_ns: f64| units::percent(share_of(time_ns, saving.time_ns));
    let worth = |time_ns: f64| time_ns >= 0.05 * saving.time_ns;
    let lines: Vec<String> = saving
        .lines
        .iter()
        .filter(|(_, time_ns)| worth(*time_ns))
        .filter_map(|((file, line), time_ns)| {
            Some(format!("{} {}", place(profile, *file, *line)?, part(*time_ns)))
        })
        .collect();
    if !lines.is_empty() {
        return lines.join(" · ");
    }
    let operators = saving.operators.iter().filter(|(_, time_ns)| worth(*time_ns));
    let operators: Vec<String> = operators
        .map(|(name, time_ns)| format!("{} {}", shorten(&clean(name), 40), part(*time_ns)))
        .collect();
    operators.join(" · ")
}

/// The key of the verdict's cause. `None` if no cause dominates or the bottleneck is unknown.
pub fn verdict_key(bottleneck: &Bottleneck) -> Option<&'static str> {
    match bottleneck.verdict() {
        Verdict::Cause(saving) => Some(saving.cause.key()),
        Verdict::NoneDominates | Verdict::Unknown => None,
    }
}

/// The bottleneck in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BottleneckEntry {
    /// The share of the iteration, 0 to 1, during which the GPU was busy; null on a CPU.
    pub gpu_busy: Option<f64>,
    /// The cause whose removal saves most; null if none dominates or the bottleneck is unknown.
    pub verdict: Option<&'static str>,
    /// The verdict as text.
    pub text: String,
    /// Largest first, with the saving for the whole host last. They overlap.
    pub savings: Vec<SavingEntry>,
}

/// The saving from removing one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavingEntry {
    /// `compute`, `memory_bandwidth`, `launch_overhead` and so on.
    pub cause: &'static str,
    /// The display name of the cause.
    pub label: &'static str,
    /// Upper bound as a share of the iteration, 0 to 1.
    pub at_most_share: f64,
    /// Upper bound in milliseconds per iteration.
    pub at_most_ms: f64,
    /// The lines that account for most of it.
    pub lines: Vec<LineEntry>,
    /// The operators that account for most of it.
    pub operators: Vec<OperatorEntry>,
}

/// A line's part of a saving.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineEntry {
    /// Relative to the project's root.
    pub file: String,
    /// Counted from 1.
    pub line: u32,
    pub ms: f64,
}

/// An operator's part of a saving.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorEntry {
    /// `aten::mm`.
    pub name: String,
    pub ms: f64,
}

/// The entry of a profile's bottleneck.
pub fn entry(bottleneck: &Bottleneck, profile: &Profile) -> BottleneckEntry {
    let on_gpu = bottleneck.gpu_busy.is_some();
    let saving = |saving: &Saving| SavingEntry {
        cause: saving.cause.key(),
        label: label(saving.cause, on_gpu),
        at_most_share: finite(saving.share),
        at_most_ms: milliseconds(saving.time_ns),
        lines: saving
            .lines
            .iter()
            .filter_map(|((file, line), time_ns)| {
                let file = profile.files.get(file.0 as usize)?;
                let ms = milliseconds(*time_ns);
                Some(LineEntry { file: file.path.clone(), line: *line, ms })
            })
            .collect(),
        operators: saving
            .operators
            .iter()
            .map(|(name, time_ns)| OperatorEntry { name: name.clone(), ms: milliseconds(*time_ns) })
            .collect(),
    };
    BottleneckEntry {
        gpu_busy: bottleneck.gpu_busy.map(finite),
        verdict: verdict_key(bottleneck),
        text: verdict(bottleneck, profile),
        savings: bottleneck.savings.iter().map(saving).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};

    fn saving(cause: Cause, share: f64, line: Option<u32>) -> Saving {
        let time_ns = share * 100e6;
        let lines = line.map(|line| ((FileId(0), line), 0.8 * time_ns)).into_iter().collect();
        Saving { cause, share, time_ns, lines, operators: vec![("aten::mm".to_owned(), time_ns)] }
    }

    /// Returns the verdict and the other savings as text.
    fn texts(gpu_busy: Option<f64>, savings: Vec<Saving>) -> (String, String) {
        let bottleneck =
            Bottleneck { iteration_ns: 100e6, gpu_busy, savings, ..Bottleneck::default() };
        (verdict(&bottleneck, &profile(TRAIN).1), others(&bottleneck))
    }

    #[test]
    fn verdicts_on_a_gpu() {
        let launches = saving(Cause::Launches, 0.14, Some(18));
        let compute = saving(Cause::Compute, 0.11, None);
        let (text, other) = texts(Some(0.84), vec![launches.clone(), compute]);
        assert_eq!(
            text,
            "GPU busy 84%. Removing launch overhead would save at most 14%, mostly in train.py:18"
        );
        assert_eq!(other, "compute-bound kernels 11%");
        let kernels = saving(Cause::Kernels, 0.7, None);
        let (text, _) = texts(Some(0.84), vec![kernels, launches]);
        assert_eq!(
            text,
            "GPU busy 84%. Faster kernels would save at most 70%; whether compute- or \
             bandwidth-bound is unknown"
        );
    }

    #[test]
    fn work_launched_before_the_iteration_is_mentioned_from_5_percent_on() {
        for (earlier_ms, expected) in [
            (
                4.0,
                "GPU busy 92%. No single bottleneck: no single cause accounts for more than 0.0%",
            ),
            (
                24.0,
                "GPU busy 92%, including 24% with work launched before the iteration. No single \
                bottleneck: no single cause accounts for more than 0.0%",
            ),
        ] {
            let bottleneck = Bottleneck {
                iteration_ns: 100e6,
                gpu_busy: Some(0.92),
                earlier_ns: earlier_ms * 1e6,
                ..Bottleneck::default()
            };
            assert_eq!(verdict(&bottleneck, &profile(TRAIN).1), expected);
        }
    }

    #[test]
    fn host_saving_is_the_verdict_if_it_exceeds_each_part() {
        let parts = [(Cause::Compute, 0.4), (Cause::Launches, 0.12), (Cause::HostCode, 0.09)];
        let mut savings: Vec<Saving> =
            parts.into_iter().map(|(cause, share)| saving(cause, share, None)).collect();
        savings.push(saving(Cause::Host, 0.55, None));
        let (text, other) = texts(Some(0.41), savings.clone());
        assert_eq!(
            text,
            "GPU busy 41%. Removing all CPU overhead would save at most 55%, no single part \
             more than 12%"
        );
        assert_eq!(other, "compute-bound kernels 40% · launch overhead 12%");
        // One part now accounts for enough of the host saving to be named.
        savings.push(saving(Cause::Synchronization, 0.3, None));
        let (text, _) = texts(Some(0.41), savings);
        assert_eq!(text, "GPU busy 41%. Faster compute-bound kernels would save at most 40%");
    }

    #[test]
    fn verdicts_on_a_cpu() {
        let python = saving(Cause::HostCode, 0.62, Some(18));
        let loading = saving(Cause::DataLoading, 0.3, None);
        let (text, other) = texts(None, vec![python, loading.clone()]);
        assert_eq!(text, "Python-bound: 62% in Python between ops, mostly in train.py:18");
        assert_eq!(other, "data loading 30%");
        let (text, other) = texts(None, vec![saving(Cause::Kernels, 0.9, None), loading.clone()]);
        assert_eq!(text, "Bottleneck unknown: 90% in ops of unknown cost");
        assert_eq!(other, "data loading 30%");
        let (text, _) = texts(None, vec![loading]);
        assert_eq!(text, "Input-bound: 30% waiting for data");
    }

    #[test]
    fn no_verdict_without_a_cause() {
        let (text, other) = texts(Some(0.99), vec![saving(Cause::Compute, 0.04, None)]);
        assert_eq!(
            text,
            "GPU busy 99%. No single bottleneck: no single cause accounts for more than 4%"
        );
        assert_eq!(other, "compute-bound kernels 4%");
        let (text, _) = texts(Some(0.35), vec![saving(Cause::Host, 0.04, None)]);
        assert_eq!(
            text,
            "GPU busy 35%. No single bottleneck: no single cause accounts for more than 4%; the \
             trace does not explain 61% in which the GPU is idle"
        );
        let unknown = Bottleneck { untrusted: Some(0.23), ..Bottleneck::default() };
        let entry = entry(&unknown, &profile(TRAIN).1);
        assert_eq!((entry.verdict, entry.gpu_busy), (None, None));
        assert!(entry.text.starts_with("Bottleneck unknown: the simulat"), "{}", entry.text);
    }

    #[test]
    fn evidence_is_lines_or_else_operators() {
        let profile = profile(TRAIN).1;
        let with_line = saving(Cause::Compute, 0.5, Some(8));
        assert_eq!(evidence(&with_line, &profile), "train.py:8 80%");
        let without = saving(Cause::Compute, 0.5, None);
        assert_eq!(evidence(&without, &profile), "aten::mm 100%");
    }
}
