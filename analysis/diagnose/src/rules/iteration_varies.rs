//! Iterations that take unequally long because of one line.
//!
//! What else runs on a machine makes iterations unequal, too. It seldom slows a quarter of them by much, so
//! quartiles are compared, of all lines together and of the one. And it slows all lines alike: here the
//! others have to be about as quick where the line is slow as where it is quick, unless it does not run in
//! the quick ones: that is the program's doing, even where the machine or the allocator is known to have
//! made iterations unequal.

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::loading::{loader, ns};
use crate::rule::Rule;
use crate::tally::Line;
use ridgeline_base::statistics::quantile;
use ridgeline_base::units::duration;
use ridgeline_profile::{FileId, Phase};
use ridgeline_recording::observed::LineTimes;

/// The upper quartile of the iterations over the lower one.
const UNEQUAL: f64 = 1.3;
/// All other lines together, where the line is slow over where it is quick, are below.
const ALIKE: f64 = 1.2;
/// The spread of all other lines together over the line's is below.
const LEAST_OF_IT: f64 = 0.4;
/// Fewer iterations whose lines were timed tell nothing.
const FEWEST: usize = 8;
/// The part of the iteration's spread that the line has to have.
const MOST_OF_IT: f64 = 0.6;
/// Lines that are not the one have to take this share, to be able to tell that they are steady.
const LEAST_REST: f64 = 0.05;

pub(super) struct IterationVaries;

impl Rule for IterationVaries {
    fn name(&self) -> &'static str {
        "iteration-varies"
    }

    fn title(&self) -> &'static str {
        "Iteration time varies because of one line"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        finding(evidence).into_iter().collect()
    }
}

fn finding(evidence: &Evidence<'_>) -> Option<Finding> {
    let observed = &evidence.manifest()?.observed;
    let lines = &observed.line_times;
    let count = lines.iter().map(|line| line.ns.len()).max().filter(|count| *count >= FEWEST)?;
    // Of lines that ran in some of them only, the others are nothing.
    let times = |line: &LineTimes| -> Vec<f64> {
        let mut ns = ns(&line.ns);
        ns.resize(count, 0.0);
        ns
    };
    let all: Vec<Vec<f64>> = lines.iter().map(times).collect();
    let sums: Vec<f64> =
        (0..count).map(|at| all.iter().filter_map(|line| line.get(at)).sum()).collect();
    let of_all = Quartiles::of(&sums).filter(Quartiles::is_unequal)?;
    let spread = |line: &Vec<f64>| Quartiles::of(line).map_or(0.0, |one| one.spread());
    let (index, line) =
        all.iter().enumerate().max_by(|a, b| spread(a.1).total_cmp(&spread(b.1)))?;
    let own = Quartiles::of(line)?;
    let rest: Vec<f64> = sums.iter().zip(line).map(|(sum, own)| sum - own).collect();
    let of_rest = Quartiles::of(&rest)?;
    let is_told = own.spread() >= MOST_OF_IT * of_all.spread()
        && of_rest.spread() <= LEAST_OF_IT * own.spread()
        && of_rest.low >= LEAST_REST * of_all.low
        && (own.low == 0.0 || (!observed.line_times_disturbed && is_alone(line, &rest, &own)));
    let at = lines.get(index).map(|line| line.at).filter(|_| is_told)?;
    if waits_for_workers(evidence, (FileId(at.file), at.line)) {
        return None;
    }
    let own = Quartiles::of(line)?;
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

/// Whether a line takes batches from a loader's workers: these are done several at a time.
fn waits_for_workers(evidence: &Evidence<'_>, (file, line): Line) -> bool {
    let has_workers = loader(evidence).is_some_and(|loader| loader.workers.unwrap_or(0) > 0);
    let own = evidence.line(file, line).map(|cost| cost.self_time).unwrap_or_default();
    has_workers && own.get(Phase::Data) > own.total() / 2.0
}

/// A quarter of the values is below the one, and a quarter above the other.
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
        self.low > 0.0 && self.high >= UNEQUAL * self.low
    }
}

/// Whether the other lines take as long where the line is slow as where it is quick.
fn is_alone(line: &[f64], rest: &[f64], own: &Quartiles) -> bool {
    let middle = f64::midpoint(own.low, own.high);
    let pairs = || line.iter().zip(rest);
    let slow: Vec<f64> = pairs().filter(|(own, _)| **own > middle).map(|(_, rest)| *rest).collect();
    let quick: Vec<f64> =
        pairs().filter(|(own, _)| **own <= middle).map(|(_, rest)| *rest).collect();
    let (slow, quick) = (quantile(&slow, 0.5), quantile(&quick, 0.5));
    slow.zip(quick).is_some_and(|(slow, quick)| slow <= ALIKE * quick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Case;
    use ridgeline_graph::graph::TaskKind;
    use ridgeline_recording::manifest::Loader;

    const PROGRAM: &str =
        "for x in loader:\n    step(x)  # step\n    save(x)  # save\n    log(x)  # log\n";

    /// Milliseconds of the three lines by iteration.
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
    fn a_line_that_takes_long_in_every_third_iteration() {
        let save = [0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0];
        // The slowest takes 20 ms, the one in the middle 11.
        let cost = lines(&STEP, &save, &LOG).finds(&IterationVaries, "save").cost;
        assert_eq!(cost, Some(Cost::time(3e6)));
    }

    #[test]
    fn a_busy_machine_slows_all_lines_down() {
        let slow = [1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0];
        let by =
            |times: &[f64; 9]| -> Vec<f64> { times.iter().zip(slow).map(|(a, b)| a * b).collect() };
        let nothing = [0.0; 9];
        lines(&by(&STEP), &nothing, &by(&LOG)).finds_nothing(&IterationVaries);
    }

    #[test]
    fn every_second_iteration_on_a_machine_with_other_work() {
        let step = [10.0, 13.1, 10.3, 9.9, 14.0, 10.2, 13.1, 10.0, 9.9];
        let save = [0.0, 30.0, 0.0, 30.0, 0.0, 30.0, 0.0, 30.0, 0.0];
        lines(&step, &save, &LOG).finds(&IterationVaries, "save");
    }

    #[test]
    fn a_disturbed_machine_has_no_part_in_which_lines_run() {
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
    fn lines_that_find_cold_caches_are_a_little_slower() {
        let saves = [0.0, 60.0, 0.0, 60.0, 0.0, 60.0, 0.0, 60.0, 0.0];
        let always = saves.map(|ms| ms + 1.0);
        let step = saves.map(|ms| if ms > 0.0 { 14.0 } else { 10.0 });
        lines(&step, &saves, &LOG).finds(&IterationVaries, "save");
        lines(&step, &always, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn batches_of_workers_come_several_at_a_time() {
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

    #[test]
    fn what_hits_one_line_now_and_another_then_is_none() {
        let step = [10.0, 18.0, 10.3, 9.9, 18.0, 10.2, 10.1, 18.0, 9.9];
        let save = [9.0, 1.0, 1.0, 10.0, 1.0, 10.0, 10.0, 1.0, 1.0];
        lines(&step, &save, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn one_slow_iteration_of_nine_is_none() {
        let save = [0.0, 0.0, 90.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        lines(&STEP, &save, &LOG).finds_nothing(&IterationVaries);
    }

    #[test]
    fn little_or_few_are_none() {
        let save = [0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0];
        lines(&STEP, &save, &LOG).finds_nothing(&IterationVaries);
        lines(&STEP[..6], &[0.0, 0.0, 9.0, 0.0, 0.0, 9.0], &LOG[..6])
            .finds_nothing(&IterationVaries);
    }

    #[test]
    fn without_the_lines_times_nothing_can_be_told() {
        let save = [0.0, 0.0, 9.0, 0.0, 0.0, 9.0, 0.0, 0.0, 9.0];
        let mut case = lines(&STEP, &save, &LOG);
        case.manifest.observed.line_times.clear();
        case.finds_nothing(&IterationVaries);
    }
}
