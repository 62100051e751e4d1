//! Self time of each statement of the current text, by phase.

use std::collections::HashMap;

use super::costed::{CostedOperators, Group};
use super::places::Places;
use super::{ByPhase, Text};
use ridgeline_operators::op_list::{OpList, Outcome};
use ridgeline_profile::{LineCost, OPERATORS_PER_LINE, Phase, PhaseTimes, Profile, Untracked};
use ridgeline_python::Place;

/// A measured time that differs from the model by more than this factor has another cause (a first
/// call, a wait) and is not used for calibration.
const MAX_FACTOR: f64 = 30.0;

/// Index of a statement, which is identified by file and first line.
pub(super) type Unit = usize;

/// The previous and the estimated cost of a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitCost {
    /// Measured self time.
    pub old: PhaseTimes,
    /// Estimated self time.
    pub new: PhaseTimes,
    /// Whether a measured line of it has changed since.
    pub changed: bool,
    /// The part of `old` during which no operator ran.
    host: PhaseTimes,
    before: Sums,
    now: Sums,
}

/// Sums over operators by the cost model.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time: PhaseTimes,
    calls: ByPhase<f64>,
}

/// The comparison of a measurement with both operator lists.
pub(super) struct ScaledUnits {
    /// The statements.
    pub units: Vec<UnitCost>,
    /// Statements by file and first line.
    by_place: HashMap<(u32, u32), Unit>,
    /// Deleted statements by file and measured line.
    deleted: HashMap<(u32, u32), Unit>,
    /// For each group of the measured text, its statement.
    pub of_before: Vec<Option<Unit>>,
    /// For each group of the current text, its statement.
    pub of_now: Vec<Option<Unit>>,
    /// For each file of the measured list, its index in the estimated profile.
    pub files_before: Vec<u32>,
    /// The same for the current list.
    pub files_now: Vec<u32>,
    /// For each frame of the measured text, its current place.
    pub frames_before: Vec<Option<FramePlace>>,
    /// For each frame of the current text, its place.
    pub frames_now: Vec<Option<FramePlace>>,
    /// For each module of the measured text, the current places of the lines that created it,
    /// innermost first.
    pub created_before: Vec<Vec<FramePlace>>,
    /// The same for modules of the current text.
    pub created_now: Vec<Vec<FramePlace>>,
    /// The measured lines that still exist.
    pub existing: Vec<ExistingLine>,
    /// The calibration of new lines.
    calibration: Calibration,
    /// Time of groups without a stack, by phase: before and now.
    without_stack: ByPhase<(f64, f64)>,
    batch_ratio: f64,
    /// Whether the current list ends early. Operators that are missing may still run, so their
    /// measured time is kept.
    pub is_partial: bool,
}

/// The current place of a stack frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    /// Index of the file.
    pub file: u32,
    /// The current line; [`DELETED`] if there is none.
    pub line: u32,
    /// The statement.
    pub unit: Unit,
}

/// Stands for a deleted line; lines are counted from 1.
const DELETED: u32 = 0;

/// A measured line that still exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExistingLine {
    /// Index into the profile's lines of the file.
    pub at: usize,
    /// Index of the file.
    pub file: u32,
    /// The current line.
    pub line: u32,
    /// The statement.
    pub unit: Unit,
    /// Whether the line has changed.
    pub changed: bool,
}

impl ScaledUnits {
    /// Compares a measurement with both operator lists, statement by statement.
    pub(super) fn new<'a>(
        old: &Profile,
        before: &CostedOperators<'_>,
        now: &CostedOperators<'_>,
        places: &mut Places<'a>,
        texts: &'a [Text<'a>],
    ) -> ScaledUnits {
        let mut files_of = |list: &OpList| -> Vec<u32> {
            list.files.iter().map(|path| places.file(path, texts)).collect()
        };
        let (files_before, files_now) = (files_of(before.list), files_of(now.list));
        let mut scaled = ScaledUnits {
            units: Vec::new(),
            by_place: HashMap::new(),
            deleted: HashMap::new(),
            of_before: Vec::new(),
            of_now: Vec::new(),
            frames_before: Vec::new(),
            frames_now: Vec::new(),
            created_before: Vec::new(),
            created_now: Vec::new(),
            files_before,
            files_now,
            existing: Vec::new(),
            calibration: Calibration::default(),
            without_stack: ByPhase::default(),
            batch_ratio: batch_ratio(old, now.list),
            is_partial: now.list.outcome == Outcome::Partial,
        };
        scaled.add_measured(old, places);
        scaled.find_frames(before.list, now.list, places);
        scaled.of_before = scaled.add_groups(before, true);
        scaled.of_now = scaled.add_groups(now, false);
        scaled.calibration = Calibration::new(&scaled, before);
        scaled.scale(now);
        scaled
    }

    /// Returns the statement at a place in the current text.
    fn unit(&mut self, places: &Places<'_>, file: u32, line: u32) -> Unit {
        let first = places.statement(file, line);
        let units = &mut self.units;
        *self.by_place.entry((file, first)).or_insert_with(|| {
            units.push(UnitCost::default());
            units.len() - 1
        })
    }

    fn add_measured(&mut self, old: &Profile, places: &Places<'_>) {
        for (file, lines) in (0_u32..).zip(&old.lines) {
            for (at, line) in lines.iter().enumerate() {
                let place = places.current_line(file, line.line);
                let unit = match place {
                    Some(place) => self.unit(places, file, place.line),
                    None => self.deleted(file, line.line),
                };
                let Some(cost) = self.units.get_mut(unit) else { continue };
                cost.old += line.self_time;
                cost.host += host_time(line);
                if let Some(place) = place {
                    cost.changed |= place.changed;
                    let (line, changed) = (place.line, place.changed);
                    self.existing.push(ExistingLine { at, file, line, unit, changed });
                }
            }
        }
    }

    fn find_frames(&mut self, before: &OpList, now: &OpList, places: &Places<'_>) {
        for frame in &before.stacks {
            let place = self.place_before(places, frame.file, frame.line);
            self.frames_before.push(place);
        }
        for frame in &now.stacks {
            let place = self.place_now(places, frame.file, frame.line);
            self.frames_now.push(place);
        }
        for module in &before.modules {
            let lines = module.definition.iter();
            let created =
                lines.filter_map(|at| self.place_before(places, at.file, at.line)).collect();
            self.created_before.push(created);
        }
        for module in &now.modules {
            let lines = module.definition.iter();
            let created = lines.filter_map(|at| self.place_now(places, at.file, at.line)).collect();
            self.created_now.push(created);
        }
    }

    fn place_before(&mut self, places: &Places<'_>, file: u32, line: u32) -> Option<FramePlace> {
        let file = *self.files_before.get(file as usize)?;
        Some(match places.current_line(file, line) {
            Some(Place { line, .. }) => {
                FramePlace { file, line, unit: self.unit(places, file, line) }
            }
            None => FramePlace { file, line: DELETED, unit: self.deleted(file, line) },
        })
    }

    fn place_now(&mut self, places: &Places<'_>, file: u32, line: u32) -> Option<FramePlace> {
        let file = *self.files_now.get(file as usize)?;
        Some(FramePlace { file, line, unit: self.unit(places, file, line) })
    }

    /// Returns the statement of a deleted line. Its time no longer counts for its callers.
    fn deleted(&mut self, file: u32, line: u32) -> Unit {
        let units = &mut self.units;
        *self.deleted.entry((file, line)).or_insert_with(|| {
            units.push(UnitCost::default());
            units.len() - 1
        })
    }

    fn add_groups(&mut self, costed: &CostedOperators<'_>, is_before: bool) -> Vec<Option<Unit>> {
        let mut units = Vec::with_capacity(costed.groups.len());
        for group in &costed.groups {
            let Some(stack) = group.stack else {
                let (before, now) = &mut self.without_stack[group.phase];
                *(if is_before { before } else { now }) += group.time_ns;
                units.push(None);
                continue;
            };
            let frames = if is_before { &self.frames_before } else { &self.frames_now };
            let unit = frames.get(stack as usize).copied().flatten().map(|place| place.unit);
            if let Some(cost) = unit.and_then(|unit| self.units.get_mut(unit)) {
                let sums = if is_before { &mut cost.before } else { &mut cost.now };
                *sums.time.get_mut(group.phase) += group.time_ns;
                sums.calls[group.phase] += group.calls;
            }
            units.push(unit);
        }
        units
    }

    fn scale(&mut self, now: &CostedOperators<'_>) {
        let mut fresh = vec![PhaseTimes::default(); self.units.len()];
        for (group, unit) in now.groups.iter().zip(&self.of_now) {
            if let Some(sum) = unit.and_then(|unit| fresh.get_mut(unit)) {
                *sum.get_mut(group.phase) += self.calibration.time(now, group);
            }
        }
        let batch_ratio = self.batch_ratio;
        for (unit, fresh) in self.units.iter_mut().zip(fresh) {
            for phase in Phase::ALL {
                let new = unit.scaled(phase, fresh.get(phase), batch_ratio, self.is_partial);
                *unit.new.get_mut(phase) = if new.is_finite() { new.max(0.0) } else { 0.0 };
            }
        }
    }

    /// Returns the measured time of a group, including its share of Python time.
    pub(super) fn measured_time(&self, group: &Group, unit: Option<Unit>) -> f64 {
        let Some(cost) = unit.and_then(|unit| self.units.get(unit)) else { return 0.0 };
        if self.is_partial && cost.now.time.get(group.phase) <= 0.0 {
            return 0.0;
        }
        share(group.time_ns, cost.before.time.get(group.phase)) * cost.old.get(group.phase)
    }

    /// Returns the estimated time of a group of the current text, including its share of Python
    /// time.
    pub(super) fn estimated_time(
        &self,
        now: &CostedOperators<'_>,
        group: &Group,
        unit: Option<Unit>,
    ) -> f64 {
        let Some(cost) = unit.and_then(|unit| self.units.get(unit)) else {
            return self.calibration.time(now, group);
        };
        if cost.before.time.get(group.phase) > 0.0 {
            share(group.time_ns, cost.now.time.get(group.phase)) * cost.new.get(group.phase)
        } else {
            self.calibration.time(now, group)
        }
    }

    /// Returns the factor by which a statement's operators are called more often than before.
    pub(super) fn calls_ratio(&self, unit: Unit) -> f64 {
        let Some(cost) = self.units.get(unit) else { return 1.0 };
        let (before, now) = (cost.before.calls.forward, cost.now.calls.forward);
        if before > 0.0 && now > 0.0 && !cost.changed { now / before } else { 1.0 }
    }

    /// Returns the time that belongs to no line, scaled if operators ran in it.
    pub(super) fn untracked(&self, old: &Profile) -> Vec<Untracked> {
        let mut parts = old.untracked.clone();
        for phase in Phase::ALL {
            let (before, now) = self.without_stack[phase];
            let phase_parts = parts.iter_mut().filter(|part| part.phase == phase);
            if before > 0.0 {
                phase_parts.for_each(|part| part.time_ns *= now / before);
            } else if now > 0.0 && old.lines.is_empty() {
                let name = "operators not called by your code".to_owned();
                parts.push(Untracked { name, phase, time_ns: now });
            }
        }
        parts
    }
}

impl UnitCost {
    /// Scales the measured operator time by the ratio of both estimates. Host time only scales with
    /// the number of calls.
    fn scaled(&self, phase: Phase, calibrated: f64, batch_ratio: f64, is_partial: bool) -> f64 {
        let (old, host) = (self.old.get(phase), self.host.get(phase).min(self.old.get(phase)));
        let (before, now) = (self.before.time.get(phase), self.now.time.get(phase));
        let calls = |sums: &Sums| sums.calls[phase];
        if before > 0.0 && now > 0.0 {
            let calls_ratio = calls(&self.now) / calls(&self.before).max(1.0);
            host * calls_ratio + (old - host) * (now / before)
        } else if before > 0.0 {
            if is_partial { old } else { host }
        } else if now > 0.0 {
            old + calibrated
        } else if phase == Phase::Data {
            old * batch_ratio
        } else {
            old
        }
    }
}

/// Returns the part of a line's self time during which none of its operators ran: Python, or on a
/// GPU also waiting for the host. It is only known for lines that call no other line of the user
/// and whose operators are all listed.
fn host_time(line: &LineCost) -> PhaseTimes {
    let mut host = PhaseTimes::default();
    let (self_ns, total) = (line.self_time.total(), line.total_time.total());
    if self_ns <= 0.0 || self_ns < 0.99 * total || line.operators.len() >= OPERATORS_PER_LINE {
        return host;
    }
    for phase in Phase::ALL {
        let listed = line.operators.iter().filter(|operator| operator.phase == Some(phase));
        let listed: f64 = listed.map(|operator| operator.time_ns).sum();
        if listed > 0.0 {
            *host.get_mut(phase) = (line.self_time.get(phase) - listed).max(0.0);
        }
    }
    host
}

/// Returns the current batch size divided by the measured one.
fn batch_ratio(old: &Profile, now: &OpList) -> f64 {
    let size = now.batch.as_ref().and_then(|batch| batch.size);
    match (old.iteration.batch_size, size) {
        (Some(before), Some(now)) if before > 0 => now as f64 / before as f64,
        _ => 1.0,
    }
}

/// The ratio of measured to modelled time of operators with the same name, over all lines. New
/// lines are calibrated with it.
#[derive(Debug, Default)]
struct Calibration {
    by_name: HashMap<String, f64>,
    overall: f64,
}

impl Calibration {
    fn new(scaled: &ScaledUnits, before: &CostedOperators<'_>) -> Calibration {
        let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
        let mut all = (0.0, 0.0);
        for (group, unit) in before.groups.iter().zip(&scaled.of_before) {
            let Some(cost) = unit.and_then(|unit| scaled.units.get(unit)) else { continue };
            let (old, host) = (cost.old.get(group.phase), cost.host.get(group.phase));
            let unit_share = share(group.time_ns, cost.before.time.get(group.phase));
            let measured = unit_share * (old - host).max(0.0);
            for sum in [sums.entry(before.name(group)).or_default(), &mut all] {
                sum.0 += measured;
                sum.1 += group.time_ns;
            }
        }
        let factor = |(measured, modelled): (f64, f64)| {
            let factor = measured / modelled;
            let is_plausible = factor > 1.0 / MAX_FACTOR && factor < MAX_FACTOR;
            is_plausible.then_some(factor)
        };
        let by_name =
            sums.into_iter().filter_map(|(name, sum)| Some((name.to_owned(), factor(sum)?)));
        Calibration { by_name: by_name.collect(), overall: factor(all).unwrap_or(1.0) }
    }

    fn time(&self, now: &CostedOperators<'_>, group: &Group) -> f64 {
        group.time_ns * self.by_name.get(now.name(group)).copied().unwrap_or(self.overall)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() { share } else { 0.0 }
}
