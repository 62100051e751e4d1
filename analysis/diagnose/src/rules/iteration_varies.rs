//! `iteration-varies`: iterations of very different duration because of one line.
//!
//! Other load on the machine also makes iterations uneven. It rarely slows a quarter of them by
//! much, so quartiles are compared, of all lines together and of the one line. And it slows all
//! lines alike: here the other lines must take about as long when the line is slow as when it is
//! fast. The exception is a line that does not run at all in the fast iterations: that is caused by
//! the program, even if the machine or the allocator is known to have made iterations uneven.

use crate::data_loaders::{loader, ns};
use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::Line;
use crate::rule::Rule;
use ridgeline_base::statistics::quantile;
use ridgeline_base::units::duration;
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::observed::LineTimes;

/// The minimum ratio of the upper quartile of the iteration times to the lower one.
const MIN_QUARTILE_RATIO: f64 = 1.3;
/// The maximum ratio of the time of all other lines when the line is slow to their time when it is
/// fast.
const MAX_REST_RATIO: f64 = 1.2;
/// The maximum ratio of the spread of all other lines together to the spread of the line.
const MAX_REST_SPREAD: f64 = 0.4;
/// The minimum number of iterations with timed lines.
const MIN_ITERATIONS: usize = 8;
/// The minimum share of the iteration's spread that is due to the line.
const MIN_LINE_SPREAD: f64 = 0.6;
/// The minimum share of the other lines in the time, to judge that they are steady.
const MIN_REST_SHARE: f64 = 0.05;

/// The minimum number of spells in which a line is slow or fast, in standard deviations from the number expected by
/// chance: the one-sided 5% quantile.
const MIN_SPELLS: f64 = -1.645;

pub(super) struct IterationVaries;

impl Rule for IterationVaries {
    fn name(&self) -> &'static str {
        "iteration-varies"
    }

    fn title(&self) -> &'static str {
        "Iteration time varies because of one line"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        varying_line(evidence).or_else(|| slow_iterations(evidence)).into_iter().collect()
    }
}

/// Iterations that are slow because of a few lines, but were not profiled. The costs of lines do not show them.
fn slow_iterations(evidence: &Evidence<'_>) -> Option<Finding> {
    let slow = evidence.profile().iteration.slow.as_ref().filter(|slow| !slow.are_whole_periods)?;
    let (first, others) = slow.lines.split_first()?;
    let which = match slow.period {
        Some(period) => format!("One of every {period} iterations"),
        None => format!("{} of {} iterations", slow.count, slow.of),
    };
    let because = match others.len() {
        0 => "because of this line".to_owned(),
        1 => "because of this line and another one".to_owned(),
        count => format!("because of this line and {count} others"),
    };
    let share: f64 = slow.lines.iter().map(|line| line.share).sum();
    Some(Finding {
        rule: "iteration-varies",
        at: evidence.place(first.file, first.line),
        message: format!(
            "{which} take{} {} instead of {} {because}",
            if slow.period.is_some() { "s" } else { "" },
            duration(slow.slow_ns),
            duration(slow.typical_ns)
        ),
        why: "Samples of the stack show it often in slow iterations, and hardly ever in the others. If \
            this work is needed, make it faster, do it less often, or move it to a background thread. \
            The cost is its share of what slow iterations add to the mean."
            .to_owned(),
        related: others
            .iter()
            .map(|line| (evidence.place(line.file, line.line), "also slow in these iterations".to_owned()))
            .collect(),
        cost: Some(Cost::time(share * (slow.mean_ns - slow.typical_ns).max(0.0))),
        ..Finding::default()
    })
}

fn varying_line(evidence: &Evidence<'_>) -> Option<Finding> {
    let observed = &evidence.manifest()?.observed;
    let lines = &observed.line_times;
    let count =
        lines.iter().map(|line| line.ns.len()).max().filter(|count| *count >= MIN_ITERATIONS)?;
    // Iterations in which a line did not run count as zero.
    let times = |line: &LineTimes| -> Vec<f64> {
        let mut ns = ns(&line.ns);
        ns.resize(count, 0.0);
        ns
    };
    let all: Vec<Vec<f64>> = lines.iter().map(times).collect();
    let sums: Vec<f64> =
        (0..count).map(|at| all.iter().filter_map(|line| line.get(at)).sum()).collect();
    let all_quartiles = Quartiles::of(&sums).filter(Quartiles::is_unequal)?;
    let spread = |line: &Vec<f64>| Quartiles::of(line).map_or(0.0, |one| one.spread());
    let (index, line) =
        all.iter().enumerate().max_by(|a, b| spread(a.1).total_cmp(&spread(b.1)))?;
    let own = Quartiles::of(line)?;
    let rest: Vec<f64> = sums.iter().zip(line).map(|(sum, own)| sum - own).collect();
    let rest_quartiles = Quartiles::of(&rest)?;
    let is_cause = own.spread() >= MIN_LINE_SPREAD * all_quartiles.spread()
        && rest_quartiles.spread() <= MAX_REST_SPREAD * own.spread()
        && rest_quartiles.low >= MIN_REST_SHARE * all_quartiles.low
        && (own.low == 0.0
            || (!observed.line_times_disturbed
                && others_are_steady(line, &rest, &own)
                && !comes_in_spells(line, &own)));
    let at = lines.get(index).map(|line| line.at).filter(|_| is_cause)?;
    let place = (FileId(at.file), at.line);
    let own = Quartiles::of(line)?;
    if waits_for_workers(evidence, place) || (own.low > 0.0 && is_backward(evidence, place)) {
        return None;
    }
    let mean_ns = line.iter().sum::<f64>() / line.len().max(1) as f64;
    Some(Finding {
        rule: "iteration-varies",
        at: evidence.place(FileId(at.file), at.line),
        message: format!(
            "This line takes {} in some iterations and {} in others",
            duration(own.high),
            duration(own.low)
        ),
        why:
            "Other load on the machine would slow down all lines, but the other lines are steady: \
            this line sometimes does more work. Spread that work evenly, do it less often, or move \
            it to a background thread. The cost is its average time above a fast iteration."
                .to_owned(),
        cost: Some(Cost::time((mean_ns - own.low).max(0.0))),
        ..Finding::default()
    })
}

/// Whether a line is the backward pass. It does as much work as the forward pass, which is steady here. But it has the
/// most work for several threads, and other programs that take a core from one of them delay all.
fn is_backward(evidence: &Evidence<'_>, (file, line): Line) -> bool {
    let own = evidence.line(file, line).map(|cost| cost.self_time).unwrap_or_default();
    own.get(Phase::Backward) > own.total() / 2.0
}

/// Whether a line takes batches from the workers of a loader: they finish several at a time.
fn waits_for_workers(evidence: &Evidence<'_>, (file, line): Line) -> bool {
    let has_workers = loader(evidence).is_some_and(|loader| loader.workers.unwrap_or(0) > 0);
    let own = evidence.line(file, line).map(|cost| cost.self_time).unwrap_or_default();
    has_workers && own.get(Phase::Data) > own.total() / 2.0
}

/// The lower and the upper quartile.
struct Quartiles {
    low: f64,
    high: f64,
}

impl Quartiles {
    fn of(values: &[f64]) -> Option<Quartiles> {
        Some(Quartiles { low: quantile(values, 0.25)?, high: quantile(values, 0.75)? })
    }

    fn spread(&self) -> f64 {
        self.high - self.low
    }

    fn is_unequal(&self) -> bool {
        self.low > 0.0 && self.high >= MIN_QUARTILE_RATIO * self.low
    }
}

/// Whether the other lines take as long when the line is slow as when it is fast.
fn others_are_steady(line: &[f64], rest: &[f64], own: &Quartiles) -> bool {
    let middle = f64::midpoint(own.low, own.high);
    let pairs = || line.iter().zip(rest);
    let slow: Vec<f64> = pairs().filter(|(own, _)| **own > middle).map(|(_, rest)| *rest).collect();
    let quick: Vec<f64> =
        pairs().filter(|(own, _)| **own <= middle).map(|(_, rest)| *rest).collect();
    let (slow, quick) = (quantile(&slow, 0.5), quantile(&quick, 0.5));
    slow.zip(quick).is_some_and(|(slow, quick)| slow <= MAX_REST_RATIO * quick)
}

/// Whether a line is slow and fast in spells that are longer than chance. The machine has such spells (its caches, its
/// clock rate, other guests of its host), and work that is done now and then has none. Wald and Wolfowitz, "On a test
/// whether two samples are from the same population" (1940).
fn comes_in_spells(line: &[f64], own: &Quartiles) -> bool {
    let middle = f64::midpoint(own.low, own.high);
    let are_slow: Vec<bool> = line.iter().map(|ns| *ns > middle).collect();
    let count = are_slow.len() as f64;
    let slow = are_slow.iter().filter(|is_slow| **is_slow).count() as f64;
    let spells = 1 + are_slow.iter().zip(are_slow.iter().skip(1)).filter(|(a, b)| a != b).count();
    let pairs = 2.0 * slow * (count - slow);
    let expected = pairs / count + 1.0;
    let deviation = (pairs * (pairs - count) / (count * count * (count - 1.0))).sqrt();
    deviation > 0.0 && (spells as f64 - expected) / deviation < MIN_SPELLS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_profile::slow_iterations::{SlowIterations, SlowLine};
    use ridgeline_recording::manifest::Loader;

    const PROGRAM: &str =
        "for x in loader:\n    step(x)  # step\n    save(x)  # save\n    log(x)  # log\n";

    /// Times of the three lines in each iteration, in milliseconds.
    fn lines(step: &[f64], save: &[f64], log: &[f64]) -> Case {
        let mut case = Case::new(PROGRAM);
        case.host(TaskKind::HostGap, 10e6, Phase::Forward, None);
        let all = [("step", step), ("save", save), ("log", log)];
        let times = all.map(|(mark, ms)| LineTimes {
            at: case.location(mark),
            ns: ms.iter().map(|ms| (ms * 1e6) as u64).collect(),
        });
        case.manifest.observed.line_times = times.to_vec();
        case
    }

    const STEP: [f64; 9] = [10.0, 10.1, 10.3, 9.9, 10.0, 10.2, 10.1, 10.0, 9.9];
    const LOG: [f64; 9] = [1.0; 9];

    #[test]
    fn slow_line_in_every_third_iteration() {
        let save = [0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0];
        // The slow iterations take 20 ms, the others 11 ms.
        let cost = lines(&STEP, &save, &LOG).finds(&IterationVaries, "save").cost;
        assert_eq!(cost, Some(Cost::time(3e6)));
    }

    #[test]
    fn busy_machine_slows_all_lines() {
        let slow = [1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0];
        let by =
            |times: &[f64; 9]| -> Vec<f64> { times.iter().zip(slow).map(|(a, b)| a * b).collect() };
        let nothing = [0.0; 9];
        lines(&by(&STEP), &nothing, &by(&LOG)).finds_nothing(&IterationVaries);
    }

    #[test]
    fn slow_line_in_every_second_iteration_on_a_busy_machine() {
        let step = [10.0, 13.1, 10.3, 9.9, 14.0, 10.2, 13.1, 10.0, 9.9];
        let save = [0.0, 30.0, 0.0, 30.0, 0.0, 30.0, 0.0, 30.0, 0.0];
        lines(&step, &save, &LOG).finds(&IterationVaries, "save");
    }

    #[test]
    fn disturbances_do_not_decide_which_lines_run() {
        let runs_seldom = [0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0];
        let runs_always = runs_seldom.map(|ms| ms + 1.0);
        let disturbed = |save: &[f64]| {
            let mut case = lines(&STEP, save, &LOG);
            case.manifest.observed.line_times_disturbed = true;
            case
        };
        disturbed(&runs_seldom).finds(&IterationVaries, "save");
        disturbed(&runs_always).finds_nothing(&IterationVaries);
        lines(&STEP, &runs_always, &LOG).finds(&IterationVaries, "save");
    }

    #[test]
    fn cold_caches_slow_other_lines_slightly() {
        let saves = [0.0, 60.0, 0.0, 60.0, 0.0, 60.0, 0.0, 60.0, 0.0];
        let always = saves.map(|ms| ms + 1.0);
        let step = saves.map(|ms| if ms > 0.0 { 14.0 } else { 10.0 });
        lines(&step, &saves, &LOG).finds(&IterationVaries, "save");
        lines(&step, &always, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn batches_of_workers_arrive_several_at_a_time() {
        let waits = [9.0, 0.1, 9.0, 0.1, 9.0, 0.1, 9.0, 0.1, 9.0];
        let by = |workers: u32| {
            let mut case = lines(&STEP, &waits, &LOG);
            case.ran("save", 1.0).self_time.data = 9e6;
            case.manifest.loaders =
                vec![Loader { workers: Some(workers), fetch_ns: vec![9, 9], ..Loader::default() }];
            case
        };
        by(2).finds_nothing(&IterationVaries);
        by(0).finds(&IterationVaries, "save");
    }

    /// Recommendation on two busy cores: the batches of an epoch have one shape, and only its `loss.backward()` varied.
    #[test]
    fn varying_backward_passes_are_not_reported() {
        let step = [94.0, 92.0, 97.0, 82.0, 84.0, 80.0, 84.0, 92.0, 90.0];
        let by = |times: [f64; 9]| {
            let mut case = lines(&step, &times, &LOG);
            case.ran("save", 1.0).self_time.backward = 80e6;
            case
        };
        let varies = [63.0, 163.0, 94.0, 54.0, 50.0, 51.0, 75.0, 165.0, 160.0];
        by(varies).finds_nothing(&IterationVaries);
        // A second backward pass in some iterations, such as that of a gradient penalty.
        by(varies.map(|ms| if ms > 90.0 { ms } else { 0.0 })).finds(&IterationVaries, "save");
    }

    /// A loader without workers in a virtual machine: each batch has as many samples of the same size.
    #[test]
    fn spells_of_a_slower_machine_are_not_reported() {
        let loads = [
            9.34, 10.59, 9.33, 10.55, 7.36, 7.06, 7.14, 7.44, 11.95, 7.02, 7.05, 6.93, 7.04, 9.96,
            9.65, 9.68, 11.5, 9.88, 9.81, 9.92, 8.81, 8.83, 8.79, 14.94,
        ];
        let step = [0.5; 24];
        lines(&step, &loads, &[0.1; 24]).finds_nothing(&IterationVaries);
        let mut mixed = loads;
        mixed.sort_by(f64::total_cmp);
        let (low, high) = mixed.split_at(12);
        let mixed: Vec<f64> = low.iter().zip(high).flat_map(|(low, high)| [*low, *high]).collect();
        lines(&step, &mixed, &[0.1; 24]).finds(&IterationVaries, "save");
    }

    #[test]
    fn slowdowns_of_varying_lines_are_not_reported() {
        let step = [10.0, 18.0, 10.3, 9.9, 18.0, 10.2, 10.1, 18.0, 9.9];
        let save = [9.0, 1.0, 1.0, 10.0, 1.0, 10.0, 10.0, 1.0, 1.0];
        lines(&step, &save, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn one_slow_iteration_of_nine_is_not_reported() {
        let save = [0.0, 0.0, 90.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        lines(&STEP, &save, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn small_variation_or_few_iterations_are_not_reported() {
        let save = [0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0];
        lines(&STEP, &save, &LOG).finds_nothing(&IterationVaries);
        lines(&STEP[..6], &[0.0, 0.0, 9.0, 0.0, 0.0, 9.0], &LOG[..6])
            .finds_nothing(&IterationVaries);
    }

    #[test]
    fn slow_iterations_that_were_not_profiled() {
        let mut case = Case::new(PROGRAM);
        case.host(TaskKind::HostGap, 10e6, Phase::Forward, None);
        let at = case.location("save");
        case.profile.iteration.slow = Some(SlowIterations {
            period: Some(80),
            count: 1,
            of: 80,
            typical_ns: 10e6,
            slow_ns: 2_010e6,
            mean_ns: 35e6,
            lines: vec![SlowLine { file: FileId(at.file), line: at.line, share: 0.8 }],
            are_whole_periods: false,
        });
        let finding = case.finds(&IterationVaries, "save");
        assert_eq!(finding.cost, Some(Cost::time(20e6)));
        assert_eq!(
            finding.message,
            "One of every 80 iterations takes 2.0 s instead of 10 ms because of this line"
        );
        if let Some(slow) = case.profile.iteration.slow.as_mut() {
            slow.are_whole_periods = true;
        }
        case.finds_nothing(&IterationVaries);
    }

    #[test]
    fn missing_line_times_are_not_reported() {
        let save = [0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0];
        let mut case = lines(&STEP, &save, &LOG);
        case.manifest.observed.line_times.clear();
        case.finds_nothing(&IterationVaries);
    }
}
