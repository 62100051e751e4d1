//! Selects activations to recompute, from fastest to least memory: Echo's footprint of the whole
//! iteration (Zheng et al., ISCA 2020, section 4.2). Memory is reused, so only allocations alive at
//! the peak count. While a call is recomputed, its activations add to what is alive then.
//!
//! Groups of calls are selected greedily by bytes saved at the peak per nanosecond added. The
//! footprint of a set of calls follows from the recorded order of allocations, without simulating
//! the graph. Only the points of the curve are simulated.

use super::facts::Facts;
use super::recomputation::{overhead_ns, recompute_segments};
use super::segments::{Group, Segment, groups, is_within};
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory;
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate;
use ridgeline_profile::{FileId, ModuleId, Profile};

/// The maximum number of points of a curve, including the unchanged iteration.
pub const MAX_POINTS: usize = 24;
/// The maximum number of groups tried in each step. The largest are tried.
const MAX_GROUPS: usize = 64;
/// The minimum share of the peak that a step has to save to be worth an edit.
const MIN_SAVED: f64 = 0.002;

/// An iteration that recomputes some of its activations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Iteration time in nanoseconds.
    pub time_ns: f64,
    /// Peak memory in bytes.
    pub peak_bytes: f64,
    /// The lines that call the recomputed modules.
    pub lines: Vec<(FileId, u32)>,
    /// The recomputed module instances.
    pub modules: Vec<ModuleId>,
    /// Whether checkpoints on those lines do exactly this. False if a line also calls other
    /// modules, or if a library's container calls them.
    pub is_an_edit: bool,
}

/// Computes the curve from the fastest point to the one with the least memory. The first point is
/// the unchanged iteration. The curve is empty if memory was not recorded or if the graph cannot be
/// simulated.
pub fn curve(recorded: &Recorded, facts: &Facts<'_>) -> Vec<Point> {
    let graph = &recorded.graph;
    let all = groups(graph, facts.profile);
    let Some(peak_bytes) = memory::peak(graph, &recorded.schedule) else { return Vec::new() };
    let now = Point {
        time_ns: recorded.schedule.iteration_ns,
        peak_bytes,
        is_an_edit: true,
        ..Point::default()
    };
    let mut sets: Vec<Set<'_>> = Vec::new();
    for is_edit in [true, false] {
        let offered: Vec<&Group> = all.iter().filter(|group| group.is_direct || !is_edit).collect();
        let steps = greedy(graph, facts.profile, &offered);
        let each = (MAX_POINTS / 2 / steps.len().max(1)).max(1);
        let mut before = Set::default();
        for step in steps {
            sets.extend(before.parts(&step, each, facts.profile));
            before = step;
            sets.push(before.clone());
        }
    }
    let mut points = vec![now];
    for set in &sets {
        let mut changed = graph.clone();
        recompute_segments(&mut changed, &set.segments, 1.0);
        let Ok(schedule) = simulate::steady(&changed) else { continue };
        let Some(peak_bytes) = memory::peak(&changed, &schedule) else { continue };
        points.push(set.point(schedule.iteration_ns, peak_bytes));
    }
    pareto_front(points)
}

/// Calls to recompute.
#[derive(Clone, Debug, Default)]
pub struct Set<'a> {
    /// The calls. None is nested in another one.
    pub segments: Vec<&'a Segment>,
    /// The lines that call them.
    pub lines: Vec<(FileId, u32)>,
    is_partial: bool,
    /// The group added last.
    added: Option<&'a Group>,
}

impl<'a> Set<'a> {
    /// Returns the set with the calls of the first `of_modules` modules of a group. They replace
    /// calls that are nested in them or contain them.
    fn with(&self, group: &'a Group, of_modules: usize, profile: &Profile) -> Set<'a> {
        let mut modules: Vec<u32> = group.segments.iter().map(|segment| segment.module).collect();
        modules.dedup();
        let is_partial = of_modules < modules.len();
        modules.truncate(of_modules);
        let overlaps = |module: u32| {
            modules
                .iter()
                .any(|one| is_within(profile, module, *one) || is_within(profile, *one, module))
        };
        let mut set = self.clone();
        set.segments.retain(|segment| !overlaps(segment.module));
        set.segments.extend(group.segments.iter().filter(|one| modules.contains(&one.module)));
        set.lines.push(group.line);
        set.is_partial |= is_partial || !group.is_direct;
        set.added = Some(group);
        set
    }

    /// Returns up to `most` intermediate sets between this one and the next.
    fn parts(&self, next: &Set<'a>, most: usize, profile: &Profile) -> Vec<Set<'a>> {
        let Some(group) = next.added else { return Vec::new() };
        let mut modules: Vec<u32> = group.segments.iter().map(|segment| segment.module).collect();
        modules.dedup();
        let parts = modules.len().min(most);
        (1..parts).map(|part| self.with(group, modules.len() * part / parts, profile)).collect()
    }

    fn point(&self, time_ns: f64, peak_bytes: f64) -> Point {
        let mut modules: Vec<ModuleId> =
            self.segments.iter().map(|segment| ModuleId(segment.module)).collect();
        modules.sort_unstable();
        modules.dedup();
        let mut lines = self.lines.clone();
        lines.sort_unstable();
        lines.dedup();
        Point { time_ns, peak_bytes, lines, modules, is_an_edit: !self.is_partial }
    }

    /// Returns the time that it adds, in nanoseconds, estimated without simulating the graph.
    pub fn added_ns(&self) -> f64 {
        self.segments.iter().map(|segment| segment.recompute_ns + overhead_ns(segment)).sum()
    }
}

/// Returns sets of calls with decreasing memory. Each adds the group that saves the most bytes at
/// the peak per time added.
pub fn greedy<'a>(graph: &Graph, profile: &Profile, offered: &[&'a Group]) -> Vec<Set<'a>> {
    let timeline = Timeline::new(graph);
    let mut offered: Vec<&'a Group> = offered.to_vec();
    let bytes =
        |group: &Group| group.segments.iter().map(|one| one.recompute_peak_bytes).sum::<f64>();
    offered.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    offered.truncate(MAX_GROUPS);
    let mut steps: Vec<Set<'a>> = Vec::new();
    let mut now = Set::default();
    let mut peak = timeline.peak(&[]);
    while steps.len() < MAX_POINTS {
        let mut best: Option<(f64, f64, Set<'a>)> = None;
        for group in &offered {
            let set = now.with(group, usize::MAX, profile);
            let new_peak = timeline.peak(&set.segments);
            let saved = peak - new_peak;
            if saved < MIN_SAVED * peak {
                continue;
            }
            let rate = saved / (set.added_ns() - now.added_ns()).max(1.0);
            if best.as_ref().is_none_or(|(known, ..)| rate > *known) {
                best = Some((rate, new_peak, set));
            }
        }
        let Some((_, new_peak, set)) = best else { break };
        now = set;
        peak = new_peak;
        steps.push(now.clone());
    }
    steps
}

/// Returns the Pareto front, from the fastest point to the one with the least memory.
fn pareto_front(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| {
        a.time_ns.total_cmp(&b.time_ns).then(a.peak_bytes.total_cmp(&b.peak_bytes))
    });
    let mut min_bytes = f64::INFINITY;
    points.retain(|point| {
        let is_smaller = point.peak_bytes < min_bytes;
        min_bytes = min_bytes.min(point.peak_bytes);
        is_smaller
    });
    // Keep the fastest and the one with the least memory.
    while points.len() > MAX_POINTS {
        let middle = points.len() - 2;
        points.remove(middle);
    }
    points
}

/// Memory alive after each event of the recording, in order.
pub struct Timeline {
    /// By event: bytes added.
    changes: Vec<f64>,
    /// Bytes alive before the first event.
    before: f64,
    /// By block: size in bytes.
    bytes: Vec<f64>,
}

impl Timeline {
    /// Creates the timeline of a graph with recorded memory.
    pub fn new(graph: &Graph) -> Timeline {
        let blocks = &graph.memory.blocks;
        let moments = || blocks.iter().flat_map(|block| [block.allocated, block.freed]).flatten();
        let last = moments().map(|moment| moment.event as usize).max().unwrap_or(0);
        let mut timeline = Timeline {
            changes: vec![0.0; last + 2],
            before: graph.memory.unexplained,
            bytes: blocks.iter().map(|block| block.bytes).collect(),
        };
        for block in blocks {
            match block.allocated {
                Some(moment) => add(&mut timeline.changes, moment.event, block.bytes),
                None => timeline.before += block.bytes,
            }
            if let Some(moment) = block.freed {
                add(&mut timeline.changes, moment.event, -block.bytes);
            }
        }
        timeline
    }

    /// Returns the peak in bytes if the calls are recomputed.
    pub fn peak(&self, segments: &[&Segment]) -> f64 {
        let mut changes = self.changes.clone();
        let mut recomputed: Vec<(u32, f64)> = Vec::with_capacity(segments.len());
        for segment in segments {
            recomputed.push((segment.backward_event, segment.recompute_peak_bytes));
            for (block, until) in &segment.dropped {
                let bytes = self.bytes.get(*block).copied().unwrap_or(0.0);
                add(&mut changes, until.event.saturating_add(1), -bytes);
                add(&mut changes, segment.backward_event, bytes);
            }
        }
        recomputed.sort_by_key(|(event, _)| *event);
        let mut recomputed = recomputed.into_iter().peekable();
        let (mut now, mut highest) = (self.before, self.before);
        for (event, change) in (0_u32..).zip(changes) {
            while let Some((_, bytes)) = recomputed.next_if(|(at, _)| *at <= event) {
                highest = highest.max(now + bytes);
            }
            now += change;
            highest = highest.max(now);
        }
        highest
    }
}

fn add(changes: &mut [f64], event: u32, bytes: f64) {
    if let Some(change) = changes.get_mut(event as usize) {
        *change += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Probes;
    use crate::fixture::{INNER, LINE, OUTPUT, WEIGHTS, gpu, step};

    #[test]
    fn the_curve_goes_from_fastest_to_smallest() {
        let step = step(4, true);
        let probes = Probes::default();
        let points = curve(&step.recorded, &step.facts(gpu(), &probes));
        let first = points.first().unwrap();
        assert_eq!(first.time_ns, step.recorded.schedule.iteration_ns);
        assert_eq!(first.peak_bytes, WEIGHTS + 4.0 * (INNER + OUTPUT));
        let last = points.last().unwrap();
        assert_eq!(last.lines, [LINE]);
        // One layer's activations are complete at a time.
        assert_eq!(last.peak_bytes, WEIGHTS + INNER + 4.0 * OUTPUT);
        assert!(points.len() <= MAX_POINTS);
        for pair in points.windows(2) {
            assert!(pair[0].time_ns < pair[1].time_ns && pair[0].peak_bytes > pair[1].peak_bytes);
        }
    }

    #[test]
    fn the_footprint_matches_the_simulated_graph() {
        let step = step(5, true);
        let graph = &step.recorded.graph;
        let groups = groups(graph, &step.profile);
        for count in 0..=5 {
            let segments: Vec<_> = groups[0].segments.iter().take(count).collect();
            let mut changed = graph.clone();
            recompute_segments(&mut changed, &segments, 1.0);
            let schedule = simulate::steady(&changed).unwrap();
            let expected = memory::peak(&changed, &schedule);
            assert_eq!(Some(Timeline::new(graph).peak(&segments)), expected, "{count}");
        }
    }

    #[test]
    fn without_memory_there_is_no_curve() {
        let mut step = step(4, true);
        step.recorded.graph.memory.is_known = false;
        let probes = Probes::default();
        assert!(curve(&step.recorded, &step.facts(gpu(), &probes)).is_empty());
    }
}
