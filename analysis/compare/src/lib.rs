//! Compares two runs: what became faster, slower, smaller or larger, and what is unknown.
//!
//! A [`run::Run`] is the part of a measurement that is stored for comparisons. A statistical test
//! over the timed iterations ([`statistics`]) judges the iteration time. Lines, modules and phases,
//! which the profiler recorded in only a few iterations, are compared with noise thresholds
//! ([`bounds`]). Lines are matched by their checksums ([`lines`]), so a line that moved is still
//! the same line. [`check`] checks a run against budgets.

mod bounds;
pub mod change;
pub mod check;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod lines;
pub mod run;
pub mod since;
pub mod statistics;
#[cfg(test)]
mod tests;

use serde::Serialize;

use bounds::{Bounds, RowTimes};
use change::{Measure, Quantity, Verdict};
use ridgeline_base::units;
use ridgeline_profile::{BUSY_SHARE, Phase};
use run::{Run, RunLine, RunModule};
use statistics::Test;

/// The relative noise of memory. Memory is counted, not sampled; smaller differences are rounding
/// by the allocator.
const MEMORY_NOISE: f64 = 0.005;

/// The comparison of two runs. Times are nanoseconds per iteration, sizes are bytes at the peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// The baseline.
    pub before: Side,
    /// The run that is compared with the baseline.
    pub after: Side,
    /// The reason why times and memory of the runs cannot be compared; `None` if they can.
    pub unlike: Option<String>,
    /// The statistical test of the iteration time; `None` if there was none.
    pub test: Option<Test>,
    /// The median iteration time, in nanoseconds.
    pub time: Measure,
    /// Samples per second.
    pub throughput: Measure,
    /// Peak memory in bytes.
    pub peak: Measure,
    /// The phases that at least one run has.
    pub phases: Vec<PhaseRow>,
    /// Lines, the largest change of self time first.
    pub lines: Vec<LineRow>,
    /// Modules, the largest change of self time first.
    pub modules: Vec<ModuleRow>,
    /// Notes for the user about the accuracy of the comparison.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether both runs ran the same source text. False if one of them is unknown.
    pub fn is_same_code(&self) -> bool {
        self.before.text.is_some() && self.before.text == self.after.text
    }
}

/// One of the two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    /// Display name of the device.
    pub device: String,
    /// PyTorch version.
    pub torch: String,
    /// Samples in a batch; that of the first of several ranks.
    pub batch_size: Option<u64>,
    /// The number of ranks; `None` if unknown.
    pub world_size: Option<u32>,
    /// The rank with the highest peak memory, which is the peak that is compared; `None` for one
    /// rank.
    pub peak_rank: Option<u32>,
    /// The number of timed iterations.
    pub timed_iterations: usize,
    /// Hash of the source texts that ran.
    pub text: Option<String>,
}

/// A phase of the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseRow {
    /// Name such as `forward`.
    pub name: &'static str,
    /// Time in nanoseconds.
    pub time: Measure,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LineRow {
    /// Its file, in the later run that has the line.
    pub file: String,
    /// The enclosing function or class, in the later run that has the line.
    pub scope: String,
    /// Line number in the earlier run, counted from 1.
    pub line_before: Option<u32>,
    /// Line number in the later run, counted from 1.
    pub line_after: Option<u32>,
    /// Whether the line was edited: it replaces the earlier line at the same place.
    pub is_changed: bool,
    /// Total time, calls included, in nanoseconds.
    pub total: Measure,
    /// Self time in nanoseconds.
    pub own: Measure,
    /// Memory at the peak that was allocated here, in bytes.
    pub memory: Measure,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModuleRow {
    /// Module path such as `layer1.0.conv1`; empty for the outermost module.
    pub path: String,
    /// Class name such as `Conv2d`.
    pub type_name: String,
    /// Total time, children included, in nanoseconds.
    pub total: Measure,
    /// Self time, without children, in nanoseconds.
    pub own: Measure,
    /// Memory at the peak that the module owns or allocated, in bytes.
    pub memory: Measure,
}

/// Compares two runs. Comparing a run with itself never shows a change.
pub fn compare(before: &Run, after: &Run) -> Comparison {
    let unlike = unlike(before, after);
    let bounds = Bounds::new(before, after);
    let (time, test) = match unlike {
        None => iteration(before, after),
        Some(_) => (Measure::unknown(positive(before.time_ns), positive(after.time_ns)), None),
    };
    let rows =
        Rows { is_comparable: unlike.is_none(), is_same_text: is_same_text(before, after), bounds };
    Comparison {
        before: describe(before),
        after: describe(after),
        time,
        throughput: throughput(before, after),
        peak: rows.peak(before, after),
        phases: rows.phases(before, after),
        lines: rows.lines(before, after),
        modules: rows.modules(before, after),
        notes: notes(before, after),
        test,
        unlike,
    }
}

fn describe(run: &Run) -> Side {
    Side {
        device: run.device.clone(),
        torch: run.torch.clone(),
        batch_size: run.batch_size,
        world_size: run.world_size,
        peak_rank: run.peak_rank,
        timed_iterations: run.timed_ns.len(),
        text: run.text.clone(),
    }
}

fn is_same_text(before: &Run, after: &Run) -> bool {
    before.text.is_some() && before.text == after.text
}

/// Returns the reason why iterations of the two runs are not the same work on the same hardware.
fn unlike(before: &Run, after: &Run) -> Option<String> {
    if before.device != after.device {
        return Some(format!("the devices differ: {} and {}", before.device, after.device));
    }
    if let Some((before, after)) = different_ranks(before, after) {
        let format_ranks =
            |ranks: u32| if ranks == 1 { "1 rank".into() } else { format!("{ranks} ranks") };
        return Some(format!(
            "the number of ranks differs: {} and {}",
            format_ranks(before),
            format_ranks(after)
        ));
    }
    let batch = |run: &Run| run.batch_size.map_or("unknown".to_owned(), |n| n.to_string());
    (before.batch_size != after.batch_size)
        .then(|| format!("the batch sizes differ: {} and {}", batch(before), batch(after)))
}

/// Returns both numbers of ranks if they differ. Runs stored by versions without this number match
/// any.
fn different_ranks(before: &Run, after: &Run) -> Option<(u32, u32)> {
    before.world_size.zip(after.world_size).filter(|(before, after)| before != after)
}

fn iteration(before: &Run, after: &Run) -> (Measure, Option<Test>) {
    let test = statistics::mann_whitney(&before.timed_ns, &after.timed_ns);
    let values = (positive(before.time_ns), positive(after.time_ns));
    let verdict = bounds::of_iteration(before, after, values, test.as_ref());
    (Measure::with_verdict(values, verdict.for_quantity(Quantity::Time)), test)
}

/// Compares samples per second, which are comparable across batch sizes.
fn throughput(before: &Run, after: &Run) -> Measure {
    let values = (before.samples_per_second(), after.samples_per_second());
    let is_elsewhere = before.device != after.device || different_ranks(before, after).is_some();
    if is_elsewhere || values.0.is_none() || values.1.is_none() {
        return Measure::unknown(values.0, values.1);
    }
    let per_sample = |run: &Run| {
        let samples = run.samples_per_iteration().unwrap_or(1.0);
        run.timed_ns.iter().map(|time| time / samples).collect::<Vec<f64>>()
    };
    let test = statistics::mann_whitney(&per_sample(before), &per_sample(after));
    // More samples per second mean fewer nanoseconds per sample.
    let inverse = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0).map(|rate| 1e9 / rate);
    let times = (inverse(values.0), inverse(values.1));
    let verdict = bounds::of_iteration(before, after, times, test.as_ref());
    Measure::with_verdict(values, verdict.for_quantity(Quantity::Time))
}

fn notes(before: &Run, after: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if is_same_text(before, after) {
        notes.push("both runs used the same code".to_owned());
    }
    let has_profiler = |run: &Run| run.time_ns > 0.0 && run.timed_ns.is_empty();
    if has_profiler(before) != has_profiler(after) {
        let which = if has_profiler(before) { "earlier" } else { "later" };
        notes.push(format!(
            "the {which} run was profiled throughout, so its times include profiling overhead"
        ));
    }
    for (which, run) in [("earlier", before), ("later", after)] {
        if run.waited_share >= BUSY_SHARE {
            notes.push(format!(
                "the machine was busy during the {which} run: the program waited for the CPU {} of \
                the time",
                units::percent(run.waited_share)
            ));
        }
    }
    if before.torch != after.torch && !before.torch.is_empty() && !after.torch.is_empty() {
        notes.push(format!("PyTorch versions differ: {} and {}", before.torch, after.torch));
    }
    let ranks = [before, after].map(|run| run.peak_rank.map(|rank| format!("rank {rank}")));
    if let [Some(then), Some(now)] = ranks {
        let of = if then == now { now } else { format!("{then} and {now}") };
        notes.push(format!("peak memory is that of {of}, the rank with the highest peak"));
    }
    notes
}

/// Returns the value if it is finite and positive, so that it is safe to divide by.
fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// Judges the rows of the tables.
struct Rows {
    /// Whether iterations of both runs are the same work on the same hardware.
    is_comparable: bool,
    /// Whether the same text ran, so nothing in it is new or gone.
    is_same_text: bool,
    bounds: Bounds,
}

impl Rows {
    /// Returns the verdict on a row that only one run has, from its total time. `is_there` is
    /// whether the other run's text contains it, too.
    fn presence(&self, before: Option<u64>, after: Option<u64>, is_there: bool) -> Verdict {
        if self.is_same_text || is_there {
            return Verdict::Unknown;
        }
        self.bounds.presence(before.map(|time| time as f64), after.map(|time| time as f64))
    }

    /// Compares times. `presence` is the verdict if only one run has the row.
    fn time(
        &self,
        before: Option<RowTimes>,
        after: Option<RowTimes>,
        presence: Verdict,
    ) -> Measure {
        let verdict = match (&before, &after) {
            (Some(before), Some(after)) if self.is_comparable => self.bounds.of_row(before, after),
            (Some(_), Some(_)) | (None, None) => Verdict::Unknown,
            (Some(cost), None) | (None, Some(cost)) if self.is_comparable => {
                self.bounds.of_unmatched(cost.time_ns, presence)
            }
            (Some(_), None) | (None, Some(_)) => presence,
        };
        let values = (before.map(|time| time.time_ns), after.map(|time| time.time_ns));
        Measure::with_verdict(values, verdict.for_quantity(Quantity::Time))
    }

    /// Compares memory, like [`Self::time`].
    fn memory(&self, before: Option<u64>, after: Option<u64>, presence: Verdict) -> Measure {
        let verdict = match (before, after) {
            (Some(before), Some(after)) if self.is_comparable => {
                self.bounds.of_memory(before as f64, after as f64)
            }
            (Some(_), Some(_)) | (None, None) => Verdict::Unknown,
            (Some(bytes), None) | (None, Some(bytes)) if self.is_comparable => {
                self.bounds.of_unmatched_memory(bytes as f64, presence)
            }
            (Some(_), None) | (None, Some(_)) => presence,
        };
        let values = (before.map(|bytes| bytes as f64), after.map(|bytes| bytes as f64));
        Measure::with_verdict(values, verdict.for_quantity(Quantity::Memory))
    }

    fn peak(&self, before: &Run, after: &Run) -> Measure {
        let known = |run: &Run| Some(run.peak_bytes).filter(|bytes| *bytes > 0);
        match (known(before), known(after)) {
            (Some(then), Some(now)) => self.memory(Some(then), Some(now), Verdict::Unknown),
            (then, now) => Measure::unknown(then.map(|b| b as f64), now.map(|b| b as f64)),
        }
    }

    fn phases(&self, before: &Run, after: &Run) -> Vec<PhaseRow> {
        let rows = Phase::ALL.into_iter().enumerate().map(|(at, phase)| {
            let of = |run: &Run| {
                let samples = run.phase_samples_ns.iter().filter_map(|sample| sample.get(at));
                Some(RowTimes::new(*run.phases_ns.get(at)?, samples))
            };
            let time = self.time(of(before), of(after), Verdict::Unknown);
            PhaseRow { name: phase.name(), time }
        });
        let is_there = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
        rows.filter(|row| is_there(row.time.before) || is_there(row.time.after)).collect()
    }

    fn lines(&self, before: &Run, after: &Run) -> Vec<LineRow> {
        let matched = lines::matched(before, after);
        let (old_text, new_text) = (lines::without_cost(before), lines::without_cost(after));
        let mut rows: Vec<LineRow> = matched
            .iter()
            .filter_map(|found| {
                let then = found.before.and_then(|at| before.lines.get(at));
                let now = found.after.and_then(|at| after.lines.get(at));
                let (run, line) = match (then, now) {
                    (_, Some(now)) => (after, now),
                    (Some(then), None) => (before, then),
                    (None, None) => return None,
                };
                let other_text = if then.is_some() { &new_text } else { &old_text };
                let is_there = other_text.contains_key(&line.checksum);
                let total_ns = |line: &RunLine| line.total_ns;
                let presence = self.presence(then.map(total_ns), now.map(total_ns), is_there);
                let total = |line: &RunLine| RowTimes::new(line.total_ns, &line.total_samples_ns);
                let own = |line: &RunLine| RowTimes::new(line.own_ns, &line.own_samples_ns);
                let bytes = |line: Option<&RunLine>| line.map(|line| line.bytes);
                Some(LineRow {
                    file: run.file(line).to_owned(),
                    scope: line.scope.clone(),
                    line_before: then.map(|line| line.line),
                    line_after: now.map(|line| line.line),
                    is_changed: found.is_changed,
                    total: self.time(then.map(total), now.map(total), presence),
                    own: self.time(then.map(own), now.map(own), presence),
                    memory: self.memory(bytes(then), bytes(now), presence),
                })
            })
            .collect();
        rows.sort_by(|a, b| by_change(&a.own, &b.own).then(by_change(&a.total, &b.total)));
        rows
    }

    fn modules(&self, before: &Run, after: &Run) -> Vec<ModuleRow> {
        use std::collections::BTreeMap;
        let mut sides: BTreeMap<&str, (Option<&RunModule>, Option<&RunModule>)> = BTreeMap::new();
        for module in &before.modules {
            sides.entry(&module.path).or_default().0.get_or_insert(module);
        }
        for module in &after.modules {
            sides.entry(&module.path).or_default().1.get_or_insert(module);
        }
        let mut rows: Vec<ModuleRow> = sides
            .into_iter()
            .map(|(path, (then, now))| {
                let total_ns = |module: &RunModule| module.total_ns;
                let presence = self.presence(then.map(total_ns), now.map(total_ns), false);
                let total = |one: &RunModule| RowTimes::new(one.total_ns, &one.total_samples_ns);
                let own = |one: &RunModule| RowTimes::new(one.own_ns, &one.own_samples_ns);
                let bytes = |module: Option<&RunModule>| module.map(|one| one.bytes);
                let type_name = now.or(then).map(|module| module.type_name.clone());
                ModuleRow {
                    path: path.to_owned(),
                    type_name: type_name.unwrap_or_default(),
                    total: self.time(then.map(total), now.map(total), presence),
                    own: self.time(then.map(own), now.map(own), presence),
                    memory: self.memory(bytes(then), bytes(now), presence),
                }
            })
            .collect();
        rows.sort_by(|a, b| by_change(&a.own, &b.own).then(by_change(&a.total, &b.total)));
        rows
    }
}

/// Orders by the size of the change, largest first.
fn by_change(a: &Measure, b: &Measure) -> std::cmp::Ordering {
    b.difference().abs().total_cmp(&a.difference().abs())
}
