//! Lines of the estimated profile: their self times and total times.

use std::collections::HashMap;

use super::costed::CostedOperators;
use super::memory::PeakMemory;
use super::operators;
use super::scale::{ExistingLine, FramePlace, ScaledUnits, Unit};
use ridgeline_operators::op_list::OpList;
use ridgeline_profile::{
    LineCost, MemoryByAge, MemoryByKind, MemoryCost, ModuleId, Phase, PhaseTimes, Profile,
    Provenance,
};

/// The maximum number of frames in a stack whose totals are updated.
const MAX_DEPTH: usize = 64;
/// Times within this relative difference are equal: it is far below what is displayed, and far
/// above rounding errors.
const TOLERANCE: f64 = 1e-6;

/// A line of the current text.
pub(super) struct Line {
    /// Index of the file.
    pub file: u32,
    pub cost: LineCost,
    unit: Unit,
    changed: bool,
    /// The measured total time. `None` if the line was not measured.
    measured: Option<PhaseTimes>,
    /// Self and total time of the current operators.
    operators: (PhaseTimes, PhaseTimes),
    memory_differs: bool,
}

/// The total time of a statement: as measured, the part that operators explain, and the current
/// time of operators.
#[derive(Clone, Debug, Default)]
struct StatementTotal {
    by_scope: Vec<(String, PhaseTimes)>,
    explained: PhaseTimes,
    now: PhaseTimes,
    /// The measured line that represents the statement: the most expensive one.
    line: Option<usize>,
}

/// The lines of the estimated profile.
pub(super) struct Lines {
    /// The lines, unordered.
    pub list: Vec<Line>,
    /// For each frame of the measured text, its line.
    pub of_before: Vec<Option<usize>>,
    /// For each frame of the current text, its line.
    pub of_now: Vec<Option<usize>>,
    /// For each module of the measured text, the lines that created it, innermost first.
    pub created_before: Vec<Vec<usize>>,
    /// The same for modules of the current text.
    pub created_now: Vec<Vec<usize>>,
    by_place: HashMap<(u32, u32), usize>,
    units: Vec<StatementTotal>,
}

impl Lines {
    /// Builds the measured lines that still exist, and those of new operators.
    pub(super) fn new(
        old: &Profile,
        before: &CostedOperators<'_>,
        now: &CostedOperators<'_>,
        scaled: &ScaledUnits,
    ) -> Lines {
        let mut lines = Lines {
            list: Vec::new(),
            of_before: Vec::new(),
            of_now: Vec::new(),
            created_before: Vec::new(),
            created_now: Vec::new(),
            by_place: HashMap::new(),
            units: vec![StatementTotal::default(); scaled.units.len()],
        };
        for line in &scaled.existing {
            lines.add_existing(old, line);
        }
        lines.find_frames(now.list, scaled);
        lines.add_operators(before, now, scaled);
        lines.scale_own(scaled);
        lines.scale_total();
        operators::list(&mut lines, now, scaled);
        lines
    }

    fn add_existing(&mut self, old: &Profile, existing: &ExistingLine) {
        let file_lines = old.lines.get(existing.file as usize);
        let Some(line) = file_lines.and_then(|lines| lines.get(existing.at)) else { return };
        let at = self.list.len();
        self.by_place.entry((existing.file, existing.line)).or_insert(at);
        if let Some(total) = self.units.get_mut(existing.unit) {
            let scope = total.by_scope.iter_mut().find(|(scope, _)| *scope == line.scope);
            match scope {
                Some((_, sum)) => *sum += line.total_time,
                None => total.by_scope.push((line.scope.clone(), line.total_time)),
            }
            let before = total.line.and_then(|at| self.list.get(at));
            let highest = before.map_or(-1.0, |line| line.cost.total_time.total());
            if line.total_time.total() > highest {
                total.line = Some(at);
            }
        }
        self.list.push(Line {
            file: existing.file,
            unit: existing.unit,
            changed: existing.changed,
            measured: Some(line.total_time),
            operators: Default::default(),
            memory_differs: false,
            cost: LineCost {
                line: existing.line,
                samples: Vec::new(),
                expressions: Vec::new(),
                callers: Vec::new(),
                instances: Vec::new(),
                ..line.clone()
            },
        });
    }

    /// Finds the line of each frame, and adds one if its statement was not measured.
    fn find_frames(&mut self, now: &OpList, scaled: &ScaledUnits) {
        for (frame, place) in now.stacks.iter().zip(&scaled.frames_now) {
            let at = place.map(|place| {
                let measured = self.measured(place);
                measured.unwrap_or_else(|| self.at(place, &frame.function))
            });
            self.of_now.push(at);
        }
        for places in &scaled.created_now {
            let mut found = Vec::with_capacity(places.len());
            for place in places {
                let measured = self.measured(*place);
                found.push(measured.unwrap_or_else(|| self.at(*place, "")));
            }
            self.created_now.push(found);
        }
        for place in &scaled.frames_before {
            self.of_before.push(place.and_then(|place| self.known(place)));
        }
        for places in &scaled.created_before {
            let found = places.iter().filter_map(|place| self.known(*place)).collect();
            self.created_before.push(found);
        }
    }

    fn known(&self, place: FramePlace) -> Option<usize> {
        self.measured(place).or_else(|| self.by_place.get(&(place.file, place.line)).copied())
    }

    /// Returns the measured line of a place, or the one that represents its statement.
    fn measured(&self, place: FramePlace) -> Option<usize> {
        let exact = self.by_place.get(&(place.file, place.line)).copied();
        let is_measured = |at: &usize| self.list.get(*at).is_some_and(|l| l.measured.is_some());
        exact.filter(is_measured).or_else(|| self.units.get(place.unit)?.line)
    }

    fn at(&mut self, place: FramePlace, scope: &str) -> usize {
        *self.by_place.entry((place.file, place.line)).or_insert_with(|| {
            self.list.push(Line {
                file: place.file,
                unit: place.unit,
                changed: true,
                measured: None,
                operators: Default::default(),
                memory_differs: false,
                cost: LineCost { line: place.line, scope: scope.to_owned(), ..LineCost::default() },
            });
            self.list.len() - 1
        })
    }

    /// Adds the previous and current time of each operator to every statement and line on its
    /// stack, once each.
    fn add_operators(
        &mut self,
        before: &CostedOperators<'_>,
        now: &CostedOperators<'_>,
        scaled: &ScaledUnits,
    ) {
        for (group, unit) in before.groups.iter().zip(&scaled.of_before) {
            let time = scaled.measured_time(group, *unit);
            for unit in units(before.list, &scaled.frames_before, group.stack) {
                if let Some(total) = self.units.get_mut(unit) {
                    *total.explained.get_mut(group.phase) += time;
                }
            }
        }
        for (group, unit) in now.groups.iter().zip(&scaled.of_now) {
            let time = scaled.estimated_time(now, group, *unit);
            for unit in units(now.list, &scaled.frames_now, group.stack) {
                if let Some(total) = self.units.get_mut(unit) {
                    *total.now.get_mut(group.phase) += time;
                }
            }
            let stack = on_stack(now.list, &self.of_now, group.stack);
            for (depth, at) in stack.into_iter().enumerate() {
                let Some(line) = self.list.get_mut(at) else { continue };
                *line.operators.1.get_mut(group.phase) += time;
                if depth == 0 {
                    *line.operators.0.get_mut(group.phase) += time;
                }
            }
        }
    }

    /// Splits the self time of a statement among its lines in the measured proportions.
    fn scale_own(&mut self, scaled: &ScaledUnits) {
        for (at, line) in self.list.iter_mut().enumerate() {
            let Some(unit) = scaled.units.get(line.unit) else { continue };
            let representative = self.units.get(line.unit).and_then(|total| total.line);
            for phase in Phase::ALL {
                let (old, new) = (unit.old.get(phase), unit.new.get(phase));
                let self_time = line.cost.self_time.get_mut(phase);
                *self_time = match line.measured {
                    Some(_) if old > 0.0 => *self_time * (new / old),
                    Some(_) if representative == Some(at) => new,
                    Some(_) => 0.0,
                    None => line.operators.0.get(phase),
                };
            }
            line.cost.calls *= scaled.calls_ratio(line.unit);
        }
    }

    /// Changes the total time of each statement by the change of its operators.
    fn scale_total(&mut self) {
        // The part of the backward pass that no stack explains belongs to `loss.backward()`, which
        // runs all of it.
        let (mut old, mut new) = (0.0, 0.0);
        for total in &self.units {
            old += total.explained.backward;
            new += total.now.backward;
        }
        let backward = if old > 0.0 { new / old } else { 1.0 };
        for (at, line) in self.list.iter_mut().enumerate() {
            let Some(total) = self.units.get(line.unit) else { continue };
            for phase in Phase::ALL {
                let minimum = line.cost.self_time.get(phase);
                let measured = line.measured.map(|total| total.get(phase));
                let old = total.total(phase);
                let total = match measured {
                    None => line.operators.1.get(phase),
                    Some(part) if old > 0.0 => part / old * total.scaled(phase, backward),
                    Some(_) if total.line == Some(at) => total.now.get(phase),
                    Some(_) => 0.0,
                };
                *line.cost.total_time.get_mut(phase) = total.max(minimum);
            }
        }
    }

    /// Updates module IDs after modules were removed.
    pub(super) fn renumber_modules(&mut self, renumbered: &[Option<ModuleId>]) {
        for line in &mut self.list {
            let modules = line.cost.modules.iter();
            let remaining =
                modules.filter_map(|id| renumbered.get(id.0 as usize).copied().flatten());
            line.cost.modules = remaining.collect();
        }
    }

    /// Returns the memory at the peak: the memory of lines plus the rest.
    pub(super) fn memory(&self, old: &Profile, peak: &PeakMemory) -> MemoryCost {
        let (mut at_peak, mut made) = (peak.rest, peak.rest_by_age);
        for line in &self.list {
            at_peak += line.cost.self_memory;
            made += line.cost.self_memory_made;
        }
        MemoryCost {
            peak_bytes: at_peak.total(),
            capacity_bytes: old.memory.capacity_bytes,
            peak_phase: old.memory.peak_phase,
            at_peak,
            by_age: made,
            ..MemoryCost::default()
        }
    }

    /// Returns the lines by file, sorted by line number.
    pub(super) fn finish(self, files: usize) -> Vec<Vec<LineCost>> {
        let mut by_file: Vec<Vec<LineCost>> = vec![Vec::new(); files];
        for mut line in self.list {
            let has_cost = line.cost.total_time.total() > 0.0 || line.cost.total_memory.total() > 0;
            if line.measured.is_none() && !has_cost {
                continue;
            }
            if line.differs() || line.changed {
                line.cost.provenance = Provenance::Estimated;
            }
            if let Some(lines) = by_file.get_mut(line.file as usize) {
                lines.push(line.cost);
            }
        }
        for lines in &mut by_file {
            lines.sort_by_key(|line| line.line);
        }
        by_file
    }
}

impl Line {
    /// Sets the line's memory at the peak.
    pub(super) fn hold(&mut self, own: MemoryByKind, made: MemoryByAge, total: MemoryByKind) {
        let cost = &mut self.cost;
        self.memory_differs |= cost.self_memory != own || cost.total_memory != total;
        (cost.self_memory, cost.self_memory_made, cost.total_memory) = (own, made, total);
    }

    /// Returns whether the cost differs from the measurement.
    pub(super) fn differs(&self) -> bool {
        let Some(total) = self.measured else { return true };
        let same = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
        let is_same = |phase| same(total.get(phase), self.cost.total_time.get(phase));
        self.memory_differs || !Phase::ALL.into_iter().all(is_same)
    }
}

impl StatementTotal {
    /// The measured total. Lines of one function are disjoint; those of a comprehension in it are
    /// already part of its line.
    fn total(&self, phase: Phase) -> f64 {
        self.by_scope.iter().map(|(_, total)| total.get(phase)).fold(0.0, f64::max)
    }

    fn scaled(&self, phase: Phase, backward: f64) -> f64 {
        let (total, explained) = (self.total(phase), self.explained.get(phase));
        let now = self.now.get(phase);
        if explained > total {
            return total * (now / explained);
        }
        let rest = total - explained;
        let is_engine = phase == Phase::Backward && explained < 0.5 * total;
        now + if is_engine { rest * backward } else { rest }
    }
}

/// Returns the lines of a stack, innermost first, each once.
pub(super) fn on_stack(list: &OpList, lines: &[Option<usize>], stack: Option<u32>) -> Vec<usize> {
    unique_on_stack(list, stack, |at| lines.get(at as usize).copied().flatten())
}

fn units(list: &OpList, places: &[Option<FramePlace>], stack: Option<u32>) -> Vec<Unit> {
    unique_on_stack(list, stack, |at| Some(places.get(at as usize).copied().flatten()?.unit))
}

fn unique_on_stack(
    list: &OpList,
    stack: Option<u32>,
    lookup: impl Fn(u32) -> Option<usize>,
) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let parent = |at: &u32| list.stacks.get(*at as usize).and_then(|frame| frame.parent);
    for at in std::iter::successors(stack, parent).take(MAX_DEPTH) {
        if let Some(one) = lookup(at).filter(|one| !found.contains(one)) {
            found.push(one);
        }
    }
    found
}
