//! Lines of the estimated profile: their own time, and that of what runs below them.

use std::collections::HashMap;

use super::costed::Costed;
use super::memory::PeakMemory;
use super::operators;
use super::scale::{FramePlace, Kept, Scaled, Unit};
use ridgeline_operators::op_list::OpList;
use ridgeline_profile::{
    LineCost, MemoryByAge, MemoryByKind, MemoryCost, ModuleId, Phase, PhaseTimes, Profile,
    Provenance,
};

/// Frames of each stack that are told what runs below them.
const DEPTH: usize = 64;
/// Times that differ less than this share are the same: it is far below what is shown, and far
/// above what rounding leaves.
const SAME: f64 = 1e-6;

/// A line of today's text.
pub(super) struct Line {
    /// Its file.
    pub file: u32,
    /// What it costs.
    pub cost: LineCost,
    unit: Unit,
    changed: bool,
    /// As measured, with what runs below it; nothing where it was not measured.
    measured: Option<PhaseTimes>,
    /// Of today's operators: in itself, and with what runs below it.
    operators: (PhaseTimes, PhaseTimes),
    memory_differs: bool,
}

/// What a statement and all below it took, what of that operators explain, and what they take now.
#[derive(Clone, Debug, Default)]
struct Below {
    by_scope: Vec<(String, PhaseTimes)>,
    explained: PhaseTimes,
    now: PhaseTimes,
    /// The measured line that stands for the statement: the costliest.
    line: Option<usize>,
}

/// See the module.
pub(super) struct Lines {
    /// The lines, in no order.
    pub list: Vec<Line>,
    /// By frame of the measured text.
    pub of_before: Vec<Option<usize>>,
    /// By frame of today's text.
    pub of_now: Vec<Option<usize>>,
    /// By module of the measured text: the lines that made it, innermost first.
    pub made_before: Vec<Vec<usize>>,
    /// By module of today's text.
    pub made_now: Vec<Vec<usize>>,
    by_place: HashMap<(u32, u32), usize>,
    units: Vec<Below>,
}

impl Lines {
    /// The lines of a profile that are still there, and those of new operators.
    pub(super) fn new(
        old: &Profile,
        before: &Costed<'_>,
        now: &Costed<'_>,
        scaled: &Scaled,
    ) -> Lines {
        let mut lines = Lines {
            list: Vec::new(),
            of_before: Vec::new(),
            of_now: Vec::new(),
            made_before: Vec::new(),
            made_now: Vec::new(),
            by_place: HashMap::new(),
            units: vec![Below::default(); scaled.units.len()],
        };
        for kept in &scaled.kept {
            lines.keep(old, kept);
        }
        lines.find_frames(now.list, scaled);
        lines.add_operators(before, now, scaled);
        lines.scale_own(scaled);
        lines.scale_total();
        operators::list(&mut lines, now, scaled);
        lines
    }

    fn keep(&mut self, old: &Profile, kept: &Kept) {
        let of_file = old.lines.get(kept.file as usize);
        let Some(line) = of_file.and_then(|lines| lines.get(kept.at)) else { return };
        let at = self.list.len();
        self.by_place.entry((kept.file, kept.line)).or_insert(at);
        if let Some(below) = self.units.get_mut(kept.unit) {
            let scope = below.by_scope.iter_mut().find(|(scope, _)| *scope == line.scope);
            match scope {
                Some((_, sum)) => *sum += line.total_time,
                None => below.by_scope.push((line.scope.clone(), line.total_time)),
            }
            let before = below.line.and_then(|at| self.list.get(at));
            let costliest = before.map_or(-1.0, |line| line.cost.total_time.total());
            if line.total_time.total() > costliest {
                below.line = Some(at);
            }
        }
        self.list.push(Line {
            file: kept.file,
            unit: kept.unit,
            changed: kept.changed,
            measured: Some(line.total_time),
            operators: Default::default(),
            memory_differs: false,
            cost: LineCost { line: kept.line, samples: Vec::new(), ..line.clone() },
        });
    }

    /// Finds the line of each frame; where its statement was not measured, there is a new one.
    fn find_frames(&mut self, now: &OpList, scaled: &Scaled) {
        for (frame, place) in now.stacks.iter().zip(&scaled.frames_now) {
            let at = place.map(|place| {
                let measured = self.measured(place);
                measured.unwrap_or_else(|| self.at(place, &frame.function))
            });
            self.of_now.push(at);
        }
        for made in &scaled.made_now {
            let mut found = Vec::with_capacity(made.len());
            for place in made {
                let measured = self.measured(*place);
                found.push(measured.unwrap_or_else(|| self.at(*place, "")));
            }
            self.made_now.push(found);
        }
        for place in &scaled.frames_before {
            self.of_before.push(place.and_then(|place| self.known(place)));
        }
        for made in &scaled.made_before {
            let found = made.iter().filter_map(|place| self.known(*place)).collect();
            self.made_before.push(found);
        }
    }

    fn known(&self, place: FramePlace) -> Option<usize> {
        self.measured(place).or_else(|| self.by_place.get(&(place.file, place.line)).copied())
    }

    /// The measured line of a place, or the one that stands for its statement.
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

    /// Gives what each operator took and takes to its stack, to every statement and line once.
    fn add_operators(&mut self, before: &Costed<'_>, now: &Costed<'_>, scaled: &Scaled) {
        for (group, unit) in before.groups.iter().zip(&scaled.of_before) {
            let time = scaled.measured_time(group, *unit);
            for unit in units(before.list, &scaled.frames_before, group.stack) {
                if let Some(below) = self.units.get_mut(unit) {
                    *below.explained.get_mut(group.phase) += time;
                }
            }
        }
        for (group, unit) in now.groups.iter().zip(&scaled.of_now) {
            let time = scaled.estimated_time(now, group, *unit);
            for unit in units(now.list, &scaled.frames_now, group.stack) {
                if let Some(below) = self.units.get_mut(unit) {
                    *below.now.get_mut(group.phase) += time;
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

    /// Divides what a statement takes among its lines as it was divided before.
    fn scale_own(&mut self, scaled: &Scaled) {
        for (at, line) in self.list.iter_mut().enumerate() {
            let Some(unit) = scaled.units.get(line.unit) else { continue };
            let stands_for = self.units.get(line.unit).and_then(|below| below.line);
            for phase in Phase::ALL {
                let (old, new) = (unit.old.get(phase), unit.new.get(phase));
                let own = line.cost.self_time.get_mut(phase);
                *own = match line.measured {
                    Some(_) if old > 0.0 => *own * (new / old),
                    Some(_) if stands_for == Some(at) => new,
                    Some(_) => 0.0,
                    None => line.operators.0.get(phase),
                };
            }
            line.cost.calls *= scaled.calls_ratio(line.unit);
        }
    }

    /// What a statement takes with all that runs below it changes by what the operators change.
    fn scale_total(&mut self) {
        // The part of the backward pass that no stack explains is that of `loss.backward()`, which
        // runs all of it.
        let (mut old, mut new) = (0.0, 0.0);
        for below in &self.units {
            old += below.explained.backward;
            new += below.now.backward;
        }
        let backward = if old > 0.0 { new / old } else { 1.0 };
        for (at, line) in self.list.iter_mut().enumerate() {
            let Some(below) = self.units.get(line.unit) else { continue };
            for phase in Phase::ALL {
                let least = line.cost.self_time.get(phase);
                let measured = line.measured.map(|total| total.get(phase));
                let old = below.total(phase);
                let total = match measured {
                    None => line.operators.1.get(phase),
                    Some(part) if old > 0.0 => part / old * below.scaled(phase, backward),
                    Some(_) if below.line == Some(at) => below.now.get(phase),
                    Some(_) => 0.0,
                };
                *line.cost.total_time.get_mut(phase) = total.max(least);
            }
        }
    }

    /// Modules have other numbers where some are gone.
    pub(super) fn renumber_modules(&mut self, renumbered: &[Option<ModuleId>]) {
        for line in &mut self.list {
            let modules = line.cost.modules.iter();
            let kept = modules.filter_map(|id| renumbered.get(id.0 as usize).copied().flatten());
            line.cost.modules = kept.collect();
        }
    }

    /// Memory at the peak: the lines' and what belongs to none.
    pub(super) fn memory(&self, old: &Profile, peak: &PeakMemory) -> MemoryCost {
        let (mut at_peak, mut made) = (peak.rest, peak.rest_made);
        for line in &self.list {
            at_peak += line.cost.self_memory;
            made += line.cost.self_memory_made;
        }
        MemoryCost {
            peak_bytes: at_peak.total(),
            capacity_bytes: old.memory.capacity_bytes,
            peak_phase: old.memory.peak_phase,
            at_peak,
            made,
            ..MemoryCost::default()
        }
    }

    /// The lines by file, each file's by line.
    pub(super) fn finish(self, files: usize) -> Vec<Vec<LineCost>> {
        let mut by_file: Vec<Vec<LineCost>> = vec![Vec::new(); files];
        for mut line in self.list {
            let costs = line.cost.total_time.total() > 0.0 || line.cost.total_memory.total() > 0;
            if line.measured.is_none() && !costs {
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
    /// Gives the line its memory at the peak.
    pub(super) fn hold(&mut self, own: MemoryByKind, made: MemoryByAge, total: MemoryByKind) {
        let cost = &mut self.cost;
        self.memory_differs |= cost.self_memory != own || cost.total_memory != total;
        (cost.self_memory, cost.self_memory_made, cost.total_memory) = (own, made, total);
    }

    /// It costs something else than was measured.
    pub(super) fn differs(&self) -> bool {
        let Some(total) = self.measured else { return true };
        let same = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs().max(b.abs());
        let is_same = |phase| same(total.get(phase), self.cost.total_time.get(phase));
        self.memory_differs || !Phase::ALL.into_iter().all(is_same)
    }
}

impl Below {
    /// As measured. Lines of one function are disjoint; those of a comprehension within it are in
    /// its own line already.
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

/// The lines of a stack, innermost first, each once.
pub(super) fn on_stack(list: &OpList, lines: &[Option<usize>], stack: Option<u32>) -> Vec<usize> {
    once(list, stack, |at| lines.get(at as usize).copied().flatten())
}

fn units(list: &OpList, places: &[Option<FramePlace>], stack: Option<u32>) -> Vec<Unit> {
    once(list, stack, |at| Some(places.get(at as usize).copied().flatten()?.unit))
}

fn once(list: &OpList, stack: Option<u32>, of: impl Fn(u32) -> Option<usize>) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    let parent = |at: &u32| list.stacks.get(*at as usize).and_then(|frame| frame.parent);
    for at in std::iter::successors(stack, parent).take(DEPTH) {
        if let Some(one) = of(at).filter(|one| !found.contains(one)) {
            found.push(one);
        }
    }
    found
}
