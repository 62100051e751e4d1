//! Converts profiled times to those of an iteration without the profiler.
//!
//! The unprofiled iterations give the time of an iteration, the profiled ones how a typical one
//! divides. The difference is recording overhead, and it is not evenly distributed. On a CPU the
//! backward pass and the optimizer were also timed without the profiler, so the overhead of each of
//! them, and of the rest of the iteration, is known; so is that of groups of lines that take less
//! time than recording them. First the recorder's own measured time is subtracted. Then each context
//! pays a cost per recorded event, at most its own time, because a line with many small operators
//! has more overhead. The remaining difference is scaled. Waits for other ranks vary between
//! iterations about as much as they take, while computing hardly varies: if there are waits, they
//! absorb most of the difference.

use std::collections::HashSet;

use super::costs::Cost;
use super::timeline::Piece;
use ridgeline_profile::Phase;

/// The cost of recording an operator relative to recording a line event. Measured on torch 2.4 and
/// 2.15: 1.4 to 3.5 µs per operator with shapes and memory, 0.23 to 0.32 µs per line event.
const OPERATOR_WEIGHT: f64 = 10.0;

/// The cost of recording an operator in nanoseconds. Where Python is slow, line events are slower,
/// but not operators: 3.2 µs beside line events of 0.8 µs.
const OPERATOR_NS: f64 = 2_800.0;

/// The maximum cost of a line event in nanoseconds if the recorder did not measure it. A profiled
/// iteration that was slower than this explains was slow for another reason.
const MAX_LINE_EVENT_NS: f64 = 320.0;

/// The maximum ratio of the cost of a line event to the time that the recorder measured for it,
/// which is without the interpreter's part and with warm caches: 0.8 to 1.5 were measured.
const LINE_EVENT_RATIO: f64 = 1.6;

/// The same on a busy machine, where the program waits for the CPU more often than in the short
/// time in which the recorder measures.
const BUSY_LINE_EVENT_RATIO: f64 = 3.0;

/// The maximum ratio by which anything but recording, such as another program, slows down the
/// profiled iterations. If they took longer, events took longer than usual.
const MAX_OTHER_SLOWDOWN: f64 = 2.0;

/// The maximum ratio by which a phase may take longer without the profiler, by chance.
const MAX_SLOWDOWN: f64 = 1.25;

/// The ratio of the relative variation of waits for other ranks between iterations to that of
/// computing. With two CPU ranks that exchange 120 small gradients with gloo, the standard
/// deviation of an iteration's waits is 0.34 of their median, and that of its backward pass 0.05
/// (torch 2.15); recording makes computing vary more.
const WAIT_VARIATION: f64 = 5.0;

/// The maximum share of a context's host time, and of the waits for other ranks, that can be
/// subtracted: the program itself took some.
const MAX_OVERHEAD_SHARE: f64 = 0.75;

/// The same if only line events were recorded. A line such as `i += 1` takes 20 to 30 ns, between a
/// tenth and a fiftieth of its event.
const MAX_OVERHEAD_SHARE_OF_LINES: f64 = 0.98;

/// Factors from sums over all profiled iterations to one iteration without the profiler.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scale {
    /// By context: the factor of its time.
    pub contexts: Vec<f64>,
    /// The factor of time without a context.
    pub rest: f64,
    /// The factor of counts and kernel times, which the profiler does not change: one over the
    /// number of iterations.
    pub per_iteration: f64,
    /// By context: the host time per line event, and the factor of the remaining host time.
    pub of_host: Vec<(f64, f64)>,
    /// By context: the factor of its waits for other ranks.
    pub of_waits: Vec<f64>,
    /// The cost of recording an operator relative to recording a line event.
    pub operator_weight: f64,
    /// By context: whether its time was measured as part of [`Unprofiled::known_together`].
    pub is_known_together: Vec<bool>,
}

/// Contexts that were measured together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KnownTogether {
    /// Indices of the contexts.
    pub contexts: Vec<usize>,
    /// Their share of an iteration without the profiler.
    pub share: f64,
}

/// The measured times of an iteration without the profiler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unprofiled<'a> {
    /// Nanoseconds per iteration.
    pub iteration_ns: f64,
    /// Phases with their share of the iteration; other phases share the remainder.
    pub phases: &'a [(Phase, f64)],
    /// Further contexts whose time is known. They are outside of these phases.
    pub known_together: &'a [KnownTogether],
    /// Nanoseconds of the recorder for a line event, if known.
    pub line_event_ns: Option<f64>,
}

impl Unprofiled<'_> {
    /// Returns the cost of recording an operator relative to recording a line event.
    fn operator_weight(&self) -> f64 {
        self.line_event_ns.map_or(OPERATOR_WEIGHT, |event_ns| {
            (OPERATOR_NS / event_ns.max(1.0)).clamp(1.0, OPERATOR_WEIGHT)
        })
    }

    /// Returns the maximum cost of a line event, usually and on a busy machine, in nanoseconds.
    fn max_event_ns(&self) -> (f64, f64) {
        let measured = |ratio: f64| self.line_event_ns.map_or(0.0, |event_ns| event_ns * ratio);
        let usual = measured(LINE_EVENT_RATIO).max(MAX_LINE_EVENT_NS);
        (usual, measured(BUSY_LINE_EVENT_RATIO).max(usual))
    }
}

impl Scale {
    /// `costs` and `rest_ns` are sums over `iterations` iterations, and `phases` has the phase of
    /// each cost.
    pub(crate) fn new(
        costs: &[Cost],
        phases: &[Phase],
        rest_ns: f64,
        iterations: usize,
        unprofiled: Unprofiled<'_>,
    ) -> Scale {
        let iterations = iterations.max(1) as f64;
        let wanted = unprofiled.iteration_ns * iterations;
        let mut scale = Scale {
            contexts: vec![0.0; costs.len()],
            rest: 0.0,
            per_iteration: 1.0 / iterations,
            of_host: vec![(0.0, 0.0); costs.len()],
            of_waits: vec![0.0; costs.len()],
            operator_weight: unprofiled.operator_weight(),
            is_known_together: vec![false; costs.len()],
        };
        let is_known = |phase: &Phase| unprofiled.phases.iter().any(|(known, _)| known == phase);
        let in_phase = |wanted: &dyn Fn(&Phase) -> bool| -> Vec<usize> {
            (0..costs.len()).filter(|at| phases.get(*at).is_some_and(wanted)).collect()
        };
        let share: f64 = unprofiled.phases.iter().map(|(_, share)| share).sum();
        let others = in_phase(&|phase| !is_known(phase));
        let mut others = Group { contexts: others, rest_ns, wanted_ns: (1.0 - share) * wanted };
        let known = unprofiled.phases.iter().map(|(phase, share)| {
            let contexts = in_phase(&|other| other == phase);
            Group { contexts, rest_ns: 0.0, wanted_ns: share * wanted }
        });
        let mut groups: Vec<Group> = known.collect();
        // If a phase takes longer without the profiler, something else was measured.
        if !groups.iter().chain([&others]).all(|one| one.is_plausible(costs)) {
            let contexts = (0..costs.len()).collect();
            groups.clear();
            others = Group { contexts, rest_ns, wanted_ns: wanted };
        }
        for known in unprofiled.known_together {
            let Some((part, rest)) = others.without(known, wanted, costs) else { continue };
            for at in &part.contexts {
                if let Some(is_known) = scale.is_known_together.get_mut(*at) {
                    *is_known = true;
                }
            }
            groups.push(part);
            others = rest;
        }
        groups.push(others);
        for group in groups {
            // The last group has the rest.
            scale.rest = group.settle(costs, unprofiled.max_event_ns(), &mut scale) / iterations;
        }
        scale.contexts.iter_mut().for_each(|factor| *factor /= iterations);
        scale.of_waits.iter_mut().for_each(|factor| *factor /= iterations);
        scale.of_host.iter_mut().for_each(|(_, factor)| *factor /= iterations);
        scale
    }

    /// Returns the nanoseconds that a part of a piece takes in an iteration without the profiler,
    /// on the host. The context's factor is not accurate enough for a part: its operators are
    /// recorded, the code between them is not.
    pub(crate) fn of_part(&self, piece: &Piece, part: f64) -> f64 {
        let time_ns = piece.end_ns.saturating_sub(piece.start_ns) as f64;
        let (per_event, factor) =
            self.of_host.get(piece.context.0 as usize).copied().unwrap_or((0.0, self.rest));
        let recorded = piece.recorded;
        let (operators, line_events) =
            (f64::from(recorded.operators), f64::from(recorded.line_events));
        let weight = operators * self.operator_weight + line_events;
        let own_ns = (time_ns - recorded.recorder_ns as f64).max(0.0);
        let most = max_overhead_share(weight, line_events);
        part * (own_ns - (weight * per_event).min(own_ns * most)) * factor
    }
}

/// Contexts whose total time without the profiler is known.
struct Group {
    /// Indices of the contexts.
    contexts: Vec<usize>,
    /// Time without a context.
    rest_ns: f64,
    /// Total time without the profiler, in as many iterations as were profiled.
    wanted_ns: f64,
}

impl Group {
    fn costs<'c>(&self, costs: &'c [Cost]) -> impl Iterator<Item = &'c Cost> {
        self.contexts.iter().filter_map(|at| costs.get(*at))
    }

    /// Returns the contexts that are known together, and the group without them. `None` if they are
    /// not part of the group, or their time is implausible. `wanted_ns` is the time of everything.
    fn without(
        &self,
        known: &KnownTogether,
        wanted_ns: f64,
        costs: &[Cost],
    ) -> Option<(Group, Group)> {
        let is_part: HashSet<usize> = known.contexts.iter().copied().collect();
        let (within, others): (Vec<usize>, Vec<usize>) =
            self.contexts.iter().partition(|at| is_part.contains(at));
        if within.is_empty() || within.len() < is_part.len() {
            return None;
        }
        let wanted_ns = known.share * wanted_ns;
        let part = Group { contexts: within, rest_ns: 0.0, wanted_ns };
        let rest = Group {
            contexts: others,
            rest_ns: self.rest_ns,
            wanted_ns: self.wanted_ns - wanted_ns,
        };
        (part.is_plausible(costs) && rest.is_plausible(costs)).then_some((part, rest))
    }

    /// Returns the profiled time of the program itself.
    fn profiled_ns(&self, costs: &[Cost]) -> f64 {
        let of_program = |cost: &Cost| cost.typical_ns - recorder_ns(cost);
        self.costs(costs).map(of_program).sum::<f64>() + self.rest_ns
    }

    /// Returns the part of it that waited for other ranks.
    fn waited_ns(&self, costs: &[Cost]) -> f64 {
        self.costs(costs).map(waited_ns).sum()
    }

    fn is_plausible(&self, costs: &[Cost]) -> bool {
        let (profiled_ns, waited_ns) = (self.profiled_ns(costs), self.waited_ns(costs));
        let most_ns = MAX_SLOWDOWN * profiled_ns + (WAIT_VARIATION - 1.0) * waited_ns;
        self.wanted_ns > 0.0 && self.wanted_ns <= most_ns
    }

    /// Sets the factor of each context, and returns the factor of time without a context.
    fn settle(
        &self,
        costs: &[Cost],
        (usual_event_ns, busy_event_ns): (f64, f64),
        scale: &mut Scale,
    ) -> f64 {
        let own: Vec<Cost> = self.costs(costs).copied().collect();
        let profiled_ns = self.profiled_ns(costs);
        let overheads: Vec<Overhead> =
            own.iter().map(|cost| Overhead::of(cost, scale.operator_weight)).collect();
        let usual = cost_per_event(&overheads, profiled_ns - self.wanted_ns, usual_event_ns);
        let least_overhead_ns = profiled_ns - self.wanted_ns * MAX_OTHER_SLOWDOWN;
        let per_event = cost_per_event(&overheads, least_overhead_ns, busy_event_ns).max(usual);
        let remaining: Vec<f64> = own
            .iter()
            .zip(&overheads)
            .map(|(cost, overhead)| remaining(cost, overhead, per_event))
            .collect();
        let waits_ns = self.waited_ns(costs);
        let computing_ns = remaining.iter().sum::<f64>() + self.rest_ns;
        let (factor, of_waits) = factors(self.wanted_ns, computing_ns, waits_ns);
        for ((at, cost), left) in self.contexts.iter().zip(&own).zip(remaining) {
            if let Some(own) = scale.contexts.get_mut(*at).filter(|_| cost.time_ns > 0.0) {
                *own = (left * factor + waited_ns(cost) * of_waits) / cost.time_ns;
            }
            if let Some(host) = scale.of_host.get_mut(*at) {
                *host = (per_event, factor);
            }
            if let Some(own) = scale.of_waits.get_mut(*at) {
                *own = typical_share(cost) * of_waits;
            }
        }
        factor
    }
}

/// Returns the factors of computing and of waits for other ranks so that together they take
/// `wanted_ns`. The difference is divided according to how much each usually varies (least
/// squares).
fn factors(wanted_ns: f64, computing_ns: f64, waited_ns: f64) -> (f64, f64) {
    let differ = (computing_ns, waited_ns * WAIT_VARIATION * WAIT_VARIATION);
    let spread = computing_ns * differ.0 + waited_ns * differ.1;
    let step = if spread > 0.0 { (wanted_ns - computing_ns - waited_ns) / spread } else { 0.0 };
    let over = |part_ns: f64, whole_ns: f64| if whole_ns > 0.0 { part_ns / whole_ns } else { 0.0 };
    let share = over(waited_ns, computing_ns + waited_ns);
    let least_ns = (1.0 - MAX_OVERHEAD_SHARE) * share * wanted_ns;
    let waits_ns = (waited_ns * (1.0 + step * differ.1)).max(least_ns).min(wanted_ns);
    (over(wanted_ns - waits_ns, computing_ns), over(waits_ns, waited_ns))
}

/// The recording overhead of a context.
struct Overhead {
    /// The number of line events with the same cost as its events.
    weight: f64,
    /// The maximum that can be subtracted from its computing time.
    max_ns: f64,
}

impl Overhead {
    fn of(cost: &Cost, operator_weight: f64) -> Overhead {
        let weight = cost.operators * operator_weight + cost.line_events;
        let computing_ns = cost.host_ns * typical_share(cost) - recorder_ns(cost) - waited_ns(cost);
        let max_ns = computing_ns.max(0.0) * max_overhead_share(weight, cost.line_events);
        Overhead { weight, max_ns }
    }
}

/// Returns the maximum share of host time that recording took, if it took as long as `weight` line
/// events, of which there were `line_events`.
fn max_overhead_share(weight: f64, line_events: f64) -> f64 {
    let of_lines = if weight > 0.0 { line_events / weight } else { 0.0 };
    MAX_OVERHEAD_SHARE + (MAX_OVERHEAD_SHARE_OF_LINES - MAX_OVERHEAD_SHARE) * of_lines
}

/// Returns the share of the typical iteration in the sum over all iterations.
fn typical_share(cost: &Cost) -> f64 {
    if cost.time_ns > 0.0 { cost.typical_ns / cost.time_ns } else { 1.0 }
}

fn recorder_ns(cost: &Cost) -> f64 {
    cost.recorder_ns.min(cost.host_ns) * typical_share(cost)
}

fn waited_ns(cost: &Cost) -> f64 {
    (cost.waited_ns * typical_share(cost)).min(cost.typical_ns - recorder_ns(cost)).max(0.0)
}

/// Returns the computing time without recording overhead.
fn remaining(cost: &Cost, overhead: &Overhead, per_event: f64) -> f64 {
    // Only the host's part was slowed down; kernels take as long as without the profiler.
    let given_back = (overhead.weight * per_event).min(overhead.max_ns);
    cost.typical_ns - recorder_ns(cost) - waited_ns(cost) - given_back
}

/// Returns the cost of a line event at which the overhead of all contexts adds up to `overhead_ns`,
/// as far as they have enough time, but at most `max_event_ns`.
fn cost_per_event(overheads: &[Overhead], overhead_ns: f64, max_event_ns: f64) -> f64 {
    let mut paying: Vec<(f64, f64, f64)> = overheads
        .iter()
        .filter(|overhead| overhead.weight > 0.0 && overhead.max_ns > 0.0)
        .map(|overhead| (overhead.max_ns / overhead.weight, overhead.max_ns, overhead.weight))
        .collect();
    // Contexts with the least time per event come first; once they are used up, the others pay the
    // rest.
    paying.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut events: f64 = paying.iter().map(|(_, _, weight)| weight).sum();
    let mut left = overhead_ns;
    for (most, time_ns, weight) in paying {
        if left <= 0.0 || events <= 0.0 {
            return 0.0;
        }
        if left / events <= most {
            return (left / events).min(max_event_ns);
        }
        left -= time_ns;
        events -= weight;
    }
    if left > 0.0 { max_event_ns } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(time_ns: f64, operators: f64, line_events: f64) -> Cost {
        Cost {
            time_ns,
            typical_ns: time_ns,
            host_ns: time_ns,
            operators,
            line_events,
            ..Cost::default()
        }
    }

    #[track_caller]
    fn check(costs: &[Cost], iteration_ns: f64, expected: &[f64]) {
        check_phases(costs, &vec![Phase::Forward; costs.len()], &[], iteration_ns, expected);
    }

    #[track_caller]
    fn check_phases(
        costs: &[Cost],
        phases: &[Phase],
        known: &[(Phase, f64)],
        iteration_ns: f64,
        expected: &[f64],
    ) {
        let scale = Scale::new(
            costs,
            phases,
            0.0,
            1,
            Unprofiled { iteration_ns, phases: known, known_together: &[], line_event_ns: None },
        );
        let times: Vec<f64> = costs
            .iter()
            .zip(&scale.contexts)
            .map(|(cost, factor)| (cost.time_ns * factor).round())
            .collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn without_events_times_are_scaled() {
        check(&[cost(100.0, 0.0, 0.0), cost(300.0, 0.0, 0.0)], 200.0, &[50.0, 150.0]);
    }

    #[test]
    fn lines_that_are_faster_than_their_event_keep_about_their_time() {
        // 400,000 lines of 25 ns, each with an event of 1.2 µs, beside 20 ms of another line.
        let lines = cost(490e6, 0.0, 400e3);
        let costs = [lines, cost(20e6, 0.0, 10.0)];
        let unprofiled = |line_event_ns| Unprofiled {
            iteration_ns: 30e6,
            phases: &[],
            known_together: &[],
            line_event_ns,
        };
        let phases = [Phase::Other; 2];
        let milliseconds = |line_event_ns| -> Vec<f64> {
            let scale = Scale::new(&costs, &phases, 0.0, 1, unprofiled(line_event_ns));
            let times = costs.iter().zip(&scale.contexts);
            times.map(|(cost, factor)| (cost.time_ns * factor / 1e6).round()).collect()
        };
        assert_eq!(milliseconds(Some(850.0)), [10.0, 20.0]);
        // On a busy machine an event took longer than where it was measured.
        assert_eq!(milliseconds(Some(420.0)), [20.0, 10.0]);
        // Without the measured time of an event, the lines keep too much.
        assert_eq!(milliseconds(None), [28.0, 2.0]);
    }

    #[test]
    fn what_was_measured_together_has_that_time() {
        let lines = cost(400e6, 0.0, 300e3);
        let costs = [lines, lines, cost(200e6, 20e3, 10.0)];
        let scaled = |known: KnownTogether| -> Vec<f64> {
            let unprofiled = Unprofiled {
                iteration_ns: 100e6,
                phases: &[(Phase::Backward, 0.2)],
                known_together: &[known],
                line_event_ns: Some(850.0),
            };
            let phases = [Phase::Other, Phase::Other, Phase::Forward];
            let scale = Scale::new(&costs, &phases, 0.0, 1, unprofiled);
            let times = costs.iter().zip(&scale.contexts);
            times.map(|(cost, factor)| (cost.time_ns * factor / 1e6).round()).collect()
        };
        let measured = KnownTogether { contexts: vec![0, 1], share: 0.1 };
        assert_eq!(scaled(measured.clone()), [5.0, 5.0, 90.0]);
        // More than the iteration, or something unknown, is ignored.
        let unknown = scaled(KnownTogether::default());
        assert_eq!(scaled(KnownTogether { share: 1.5, ..measured.clone() }), unknown);
        assert_eq!(scaled(KnownTogether { share: f64::NAN, ..measured }), unknown);
        assert_eq!(scaled(KnownTogether { contexts: vec![9], share: 0.1 }), unknown);
    }

    #[test]
    fn contexts_with_more_events_have_more_overhead() {
        check(&[cost(1000.0, 9.0, 10.0), cost(1000.0, 0.0, 0.0)], 1900.0, &[900.0, 1000.0]);
    }

    #[test]
    fn overhead_is_limited_per_context() {
        check(&[cost(100.0, 0.0, 100.0), cost(1000.0, 0.0, 1.0)], 992.0, &[2.0, 990.0]);
    }

    #[test]
    fn overhead_is_subtracted_by_phase() {
        let costs = [cost(1000.0, 5.0, 0.0), cost(1000.0, 5.0, 0.0), cost(1000.0, 0.0, 0.0)];
        let phases = [Phase::Forward, Phase::Optimizer, Phase::Backward];
        let known = [(Phase::Backward, 0.4), (Phase::Optimizer, 0.4)];
        check_phases(&costs, &phases, &known, 2000.0, &[400.0, 800.0, 800.0]);
        check_phases(&costs, &phases, &known[1..], 2000.0, &[240.0, 800.0, 960.0]);
        // More than with the profiler: something else was measured.
        let longer = [(Phase::Backward, 0.7)];
        check_phases(&costs, &phases, &longer, 2000.0, &[500.0, 500.0, 1000.0]);
        // A phase that does not occur.
        check_phases(&costs, &[Phase::Forward; 3], &known[..1], 2000.0, &[500.0, 500.0, 1000.0]);
    }

    #[test]
    fn recorder_time_is_subtracted() {
        let with_recorder = Cost { recorder_ns: 600.0, ..cost(1000.0, 0.0, 4.0) };
        check(&[with_recorder, cost(1000.0, 0.0, 0.0)], 1400.0, &[400.0, 1000.0]);
        check(&[with_recorder, cost(1000.0, 0.0, 4.0)], 1000.0, &[200.0, 800.0]);
        // It may have taken all of a context.
        let only_recorder = Cost { recorder_ns: 2000.0, ..cost(1000.0, 3.0, 4.0) };
        check(&[only_recorder, cost(1000.0, 0.0, 0.0)], 900.0, &[0.0, 900.0]);
    }

    #[test]
    fn waits_for_other_ranks_absorb_most_of_the_difference() {
        let waits = Cost { waited_ns: 1000.0, ..cost(1000.0, 0.0, 0.0) };
        let computes = cost(1000.0, 0.0, 0.0);
        check(&[waits, computes], 3000.0, &[1962.0, 1038.0]);
        check(&[waits, computes], 1500.0, &[519.0, 981.0]);
        // Shorter than the computing time: the ranks still waited.
        check(&[waits, computes], 504.0, &[63.0, 441.0]);
        // A short wait explains little.
        let waits = Cost { waited_ns: 10.0, ..cost(10.0, 0.0, 0.0) };
        check(&[waits, computes], 1515.0, &[11.0, 1504.0]);
        let known = [(Phase::Backward, 0.2)];
        let waits = Cost { waited_ns: 900.0, ..cost(1000.0, 0.0, 0.0) };
        let phases = [Phase::Other, Phase::Forward, Phase::Backward];
        check_phases(
            &[waits, computes, computes],
            &phases,
            &known,
            5000.0,
            &[2897.0, 1103.0, 1000.0],
        );
    }

    #[test]
    fn overhead_per_event_is_limited() {
        check(&[cost(5e6, 0.0, 1.0), cost(5e6, 0.0, 0.0)], 5e6, &[2_499_920.0, 2_500_080.0]);
    }

    #[test]
    fn a_faster_profiled_iteration_is_scaled_up() {
        check(&[cost(100.0, 5.0, 5.0)], 200.0, &[200.0]);
    }

    #[test]
    fn kernel_time_is_not_reduced() {
        let kernels =
            Cost { time_ns: 1000.0, typical_ns: 1000.0, operators: 50.0, ..Cost::default() };
        check(&[kernels, cost(1000.0, 10.0, 0.0)], 1500.0, &[1000.0, 500.0]);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_iteration(
            costs in prop::collection::vec((0.0..1e9, 0.0..1e4, 0.0..1e5, 0.0..1.0, 0.0..1.0, 0.0..1.0), 1..50),
            rest in 0.0..1e6,
            iterations in 1usize..5,
            iteration in 0.0..1e10,
            shares in (0.0..0.5, 0.0..0.5),
            together in 0.0..0.5,
        ) {
            let costs: Vec<Cost> = costs
                .into_iter()
                .map(|(time, operators, lines, host, recorder, waited)| Cost {
                    host_ns: time * host,
                    recorder_ns: time * host * recorder,
                    waited_ns: time * host * waited,
                    ..cost(time, operators, lines)
                })
                .collect();
            let phases: Vec<Phase> = (0..costs.len())
                .map(|at| [Phase::Forward, Phase::Backward, Phase::Optimizer][at % 3])
                .collect();
            let known = [(Phase::Backward, shares.0), (Phase::Optimizer, shares.1)];
            let contexts = (0..costs.len()).filter(|at| at % 6 == 0).collect();
            let together = [KnownTogether { contexts, share: together }];
            let unprofiled = Unprofiled {
                iteration_ns: iteration,
                phases: &known,
                known_together: &together,
                line_event_ns: None,
            };
            let scale = Scale::new(&costs, &phases, rest, iterations, unprofiled);
            let parts = costs.iter().zip(&scale.contexts).map(|(cost, factor)| cost.time_ns * factor);
            let sum = parts.clone().sum::<f64>() + rest * scale.rest;
            prop_assume!(scale.rest > 0.0);
            prop_assert!((sum - iteration).abs() <= iteration * 1e-9, "{sum} {iteration}");
            prop_assert!(parts.clone().all(|part| part >= 0.0));
        }
    }
}
