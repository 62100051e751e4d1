//! What to drop and make again, from fastest to smallest: Echo's footprint of the whole iteration
//! (Zheng et al., ISCA 2020, section 4.2). Memory is used again, so only what is alive at the peak
//! counts; and while a call runs again, what it makes adds to what is alive then.
//!
//! Groups of calls are taken greedily by bytes saved at the peak for each nanosecond added. The
//! footprint of a set of calls follows from the recording's order of allocations alone, without
//! running the graph; the points of the curve are run.

use super::facts::Facts;
use super::recomputation::{overhead_ns, run_again};
use super::segments::{Group, Segment, groups, is_within};
use ridgeline_graph::graph::Graph;
use ridgeline_graph::memory;
use ridgeline_graph::recorded::Recorded;
use ridgeline_graph::simulate;
use ridgeline_profile::{FileId, ModuleId, Profile};

/// Points of a curve, the one of the iteration as it is among them.
pub const MOST_POINTS: usize = 24;
/// Groups that are tried in each step; of more the largest.
const MOST_GROUPS: usize = 64;
/// A step that saves a smaller share of the peak is not worth an edit.
const LEAST_SAVED: f64 = 0.002;

/// An iteration that makes some of its activations again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Nanoseconds of an iteration.
    pub time_ns: f64,
    /// Bytes at its peak.
    pub peak_bytes: f64,
    /// The lines that call what runs again.
    pub lines: Vec<(FileId, u32)>,
    /// The module instances that run again.
    pub modules: Vec<ModuleId>,
    /// Whether checkpoints on those lines do just that: otherwise a line calls other modules too, or
    /// a library's container calls them.
    pub is_an_edit: bool,
}

/// The curve from the fastest to the smallest: each point takes longer than the one before and needs
/// less. Its first point is the iteration as it is; empty where the recording does not tell of memory
/// or the graph cannot be run.
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
        let each = (MOST_POINTS / 2 / steps.len().max(1)).max(1);
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
        run_again(&mut changed, &set.segments, 1.0);
        let Ok(schedule) = simulate::steady(&changed) else { continue };
        let Some(peak_bytes) = memory::peak(&changed, &schedule) else { continue };
        points.push(set.point(schedule.iteration_ns, peak_bytes));
    }
    front(points)
}

/// Calls to make again.
#[derive(Clone, Debug, Default)]
pub struct Set<'a> {
    /// No call of them is within another one.
    pub segments: Vec<&'a Segment>,
    /// The lines that call them.
    pub lines: Vec<(FileId, u32)>,
    is_partial: bool,
    /// The last group that was added.
    added: Option<&'a Group>,
}

impl<'a> Set<'a> {
    /// With a group's calls; what is within them, or around them, is left to the group.
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

    /// Sets between this one and the next.
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

    /// Nanoseconds that it adds, as far as that is known without running the graph.
    pub fn added_ns(&self) -> f64 {
        self.segments.iter().map(|segment| segment.again_ns + overhead_ns(segment)).sum()
    }
}

/// Sets of calls that need ever less memory: each adds to the one before the group that saves most
/// bytes at the peak for its time.
pub fn greedy<'a>(graph: &Graph, profile: &Profile, offered: &[&'a Group]) -> Vec<Set<'a>> {
    let timeline = Timeline::new(graph);
    let mut offered: Vec<&'a Group> = offered.to_vec();
    let bytes = |group: &Group| group.segments.iter().map(|one| one.most_bytes).sum::<f64>();
    offered.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    offered.truncate(MOST_GROUPS);
    let mut steps: Vec<Set<'a>> = Vec::new();
    let mut now = Set::default();
    let mut peak = timeline.peak(&[]);
    while steps.len() < MOST_POINTS {
        let mut best: Option<(f64, f64, Set<'a>)> = None;
        for group in &offered {
            let set = now.with(group, usize::MAX, profile);
            let then = timeline.peak(&set.segments);
            let saved = peak - then;
            if saved < LEAST_SAVED * peak {
                continue;
            }
            let rate = saved / (set.added_ns() - now.added_ns()).max(1.0);
            if best.as_ref().is_none_or(|(known, ..)| rate > *known) {
                best = Some((rate, then, set));
            }
        }
        let Some((_, then, set)) = best else { break };
        now = set;
        peak = then;
        steps.push(now.clone());
    }
    steps
}

/// Points that no other point beats in both, from fastest to smallest.
fn front(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| {
        a.time_ns.total_cmp(&b.time_ns).then(a.peak_bytes.total_cmp(&b.peak_bytes))
    });
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let is_smaller = point.peak_bytes < least;
        least = least.min(point.peak_bytes);
        is_smaller
    });
    // The smallest stays, and the fastest.
    while points.len() > MOST_POINTS {
        let middle = points.len() - 2;
        points.remove(middle);
    }
    points
}

/// How much is alive after each event of the recording, in its order.
pub struct Timeline {
    /// By event: bytes that it adds.
    changes: Vec<f64>,
    /// What was alive before.
    before: f64,
    /// By block: its bytes.
    bytes: Vec<f64>,
}

impl Timeline {
    /// Of a graph whose recording tells of memory.
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

    /// The peak, in bytes, where calls run again.
    pub fn peak(&self, segments: &[&Segment]) -> f64 {
        let mut changes = self.changes.clone();
        let mut again: Vec<(u32, f64)> = Vec::with_capacity(segments.len());
        for segment in segments {
            again.push((segment.backward_event, segment.most_bytes));
            for (block, until) in &segment.dropped {
                let bytes = self.bytes.get(*block).copied().unwrap_or(0.0);
                add(&mut changes, until.event.saturating_add(1), -bytes);
                add(&mut changes, segment.backward_event, bytes);
            }
        }
        again.sort_by_key(|(event, _)| *event);
        let mut again = again.into_iter().peekable();
        let (mut now, mut highest) = (self.before, self.before);
        for (event, change) in (0_u32..).zip(changes) {
            while let Some((_, bytes)) = again.next_if(|(at, _)| *at <= event) {
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
        // One layer is whole at any time.
        assert_eq!(last.peak_bytes, WEIGHTS + INNER + 4.0 * OUTPUT);
        assert!(points.len() <= MOST_POINTS);
        for pair in points.windows(2) {
            assert!(pair[0].time_ns < pair[1].time_ns && pair[0].peak_bytes > pair[1].peak_bytes);
        }
    }

    #[test]
    fn the_footprint_is_that_of_the_graph_that_was_run() {
        let step = step(5, true);
        let graph = &step.recorded.graph;
        let groups = groups(graph, &step.profile);
        for count in 0..=5 {
            let segments: Vec<_> = groups[0].segments.iter().take(count).collect();
            let mut changed = graph.clone();
            run_again(&mut changed, &segments, 1.0);
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
