//! The time that each statement of today's text takes itself, by phase.

use std::collections::HashMap;

use super::costed::{Costed, Group};
use super::places::Places;
use super::{ByPhase, Text};
use ridgeline_operators::op_list::{OpList, Outcome};
use ridgeline_profile::{LineCost, OPERATORS_PER_LINE, Phase, PhaseTimes, Profile, Untracked};
use ridgeline_python::Place;

/// A measured time that differs more than this from the model's tells of something else than the
/// operator (a first call, a wait), and calibrates nothing.
const MOST_FACTOR: f64 = 30.0;

/// A statement: file and first line.
pub(super) type Unit = usize;

/// What a statement took and takes.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitCost {
    /// As measured, by phase.
    pub old: PhaseTimes,
    /// As estimated from it, by phase.
    pub new: PhaseTimes,
    /// It was measured at a line that reads differently now.
    pub changed: bool,
    /// Of `old`, in which no operator ran.
    host: PhaseTimes,
    before: Sums,
    now: Sums,
}

/// By the model.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    time: PhaseTimes,
    calls: ByPhase<f64>,
}

/// See the module.
pub(super) struct Scaled {
    /// Statements.
    pub units: Vec<UnitCost>,
    /// By file and first line.
    by_place: HashMap<(u32, u32), Unit>,
    /// By file and line of before.
    gone: HashMap<(u32, u32), Unit>,
    /// Of each group of the measured text: its statement, where it still is.
    pub of_before: Vec<Option<Unit>>,
    /// Of each group of today's text: its statement.
    pub of_now: Vec<Option<Unit>>,
    /// By index into each list's files: the estimated profile's file.
    pub files_before: Vec<u32>,
    /// The same of today's list.
    pub files_now: Vec<u32>,
    /// Where each frame of the measured text stands today.
    pub frames_before: Vec<Option<FramePlace>>,
    /// Where each frame of today's text stands.
    pub frames_now: Vec<Option<FramePlace>>,
    /// Where the lines that made each module of the measured text stand today, innermost first.
    pub made_before: Vec<Vec<FramePlace>>,
    /// The same of today's modules.
    pub made_now: Vec<Vec<FramePlace>>,
    /// Measured lines that are still in the text: index into the profile's lines of a file, file,
    /// today's line, and whether that line reads differently.
    pub kept: Vec<Kept>,
    /// By operator: measured over modelled.
    likes: Likes,
    /// Groups without a stack, by phase: before and now.
    adrift: ByPhase<(f64, f64)>,
    batch_ratio: f64,
    /// Today's list ends early: what is not in it may run all the same, and is kept as it was.
    pub is_partial: bool,
}

/// Where a frame of a stack is in today's text.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    /// The file.
    pub file: u32,
    /// Today's line; [`GONE`] where there is none.
    pub line: u32,
    /// Its statement.
    pub unit: Unit,
}

/// The line of what is in no line any more; lines are counted from 1.
const GONE: u32 = 0;

/// A measured line that is still in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Index into the profile's lines of the file.
    pub at: usize,
    /// The file.
    pub file: u32,
    /// Today's line.
    pub line: u32,
    /// Its statement.
    pub unit: Unit,
    /// It reads differently.
    pub changed: bool,
}

impl Scaled {
    /// Compares a measurement and both lists of operators, statement by statement.
    pub(super) fn new<'a>(
        old: &Profile,
        before: &Costed<'_>,
        now: &Costed<'_>,
        places: &mut Places<'a>,
        texts: &'a [Text<'a>],
    ) -> Scaled {
        let mut files_of = |list: &OpList| -> Vec<u32> {
            list.files.iter().map(|path| places.file(path, texts)).collect()
        };
        let (files_before, files_now) = (files_of(before.list), files_of(now.list));
        let mut scaled = Scaled {
            units: Vec::new(),
            by_place: HashMap::new(),
            gone: HashMap::new(),
            of_before: Vec::new(),
            of_now: Vec::new(),
            frames_before: Vec::new(),
            frames_now: Vec::new(),
            made_before: Vec::new(),
            made_now: Vec::new(),
            files_before,
            files_now,
            kept: Vec::new(),
            likes: Likes::default(),
            adrift: ByPhase::default(),
            batch_ratio: batch_ratio(old, now.list),
            is_partial: now.list.outcome == Outcome::Partial,
        };
        scaled.take_measured(old, places);
        scaled.find_frames(before.list, now.list, places);
        scaled.of_before = scaled.take_groups(before, true);
        scaled.of_now = scaled.take_groups(now, false);
        scaled.likes = Likes::new(&scaled, before);
        scaled.scale(now);
        scaled
    }

    /// The statement at a place of today's text.
    fn unit(&mut self, places: &Places<'_>, file: u32, line: u32) -> Unit {
        let first = places.statement(file, line);
        let units = &mut self.units;
        *self.by_place.entry((file, first)).or_insert_with(|| {
            units.push(UnitCost::default());
            units.len() - 1
        })
    }

    fn take_measured(&mut self, old: &Profile, places: &Places<'_>) {
        for (file, lines) in (0_u32..).zip(&old.lines) {
            for (at, line) in lines.iter().enumerate() {
                let place = places.today(file, line.line);
                let unit = match place {
                    Some(place) => self.unit(places, file, place.line),
                    None => self.gone(file, line.line),
                };
                let Some(cost) = self.units.get_mut(unit) else { continue };
                cost.old += line.self_time;
                cost.host += host_time(line);
                if let Some(place) = place {
                    cost.changed |= place.changed;
                    let (line, changed) = (place.line, place.changed);
                    self.kept.push(Kept { at, file, line, unit, changed });
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
            let made = lines.filter_map(|at| self.place_before(places, at.file, at.line)).collect();
            self.made_before.push(made);
        }
        for module in &now.modules {
            let lines = module.definition.iter();
            let made = lines.filter_map(|at| self.place_now(places, at.file, at.line)).collect();
            self.made_now.push(made);
        }
    }

    fn place_before(&mut self, places: &Places<'_>, file: u32, line: u32) -> Option<FramePlace> {
        let file = *self.files_before.get(file as usize)?;
        Some(match places.today(file, line) {
            Some(Place { line, .. }) => {
                FramePlace { file, line, unit: self.unit(places, file, line) }
            }
            None => FramePlace { file, line: GONE, unit: self.gone(file, line) },
        })
    }

    fn place_now(&mut self, places: &Places<'_>, file: u32, line: u32) -> Option<FramePlace> {
        let file = *self.files_now.get(file as usize)?;
        Some(FramePlace { file, line, unit: self.unit(places, file, line) })
    }

    /// A line that is not in today's text any more. What it took is no longer taken by its callers.
    fn gone(&mut self, file: u32, line: u32) -> Unit {
        let units = &mut self.units;
        *self.gone.entry((file, line)).or_insert_with(|| {
            units.push(UnitCost::default());
            units.len() - 1
        })
    }

    fn take_groups(&mut self, costed: &Costed<'_>, is_before: bool) -> Vec<Option<Unit>> {
        let mut of_groups = Vec::with_capacity(costed.groups.len());
        for group in &costed.groups {
            let Some(stack) = group.stack else {
                let (before, now) = &mut self.adrift[group.phase];
                *(if is_before { before } else { now }) += group.time_ns;
                of_groups.push(None);
                continue;
            };
            let frames = if is_before { &self.frames_before } else { &self.frames_now };
            let unit = frames.get(stack as usize).copied().flatten().map(|place| place.unit);
            if let Some(cost) = unit.and_then(|unit| self.units.get_mut(unit)) {
                let sums = if is_before { &mut cost.before } else { &mut cost.now };
                *sums.time.get_mut(group.phase) += group.time_ns;
                sums.calls[group.phase] += group.calls;
            }
            of_groups.push(unit);
        }
        of_groups
    }

    fn scale(&mut self, now: &Costed<'_>) {
        let mut fresh = vec![PhaseTimes::default(); self.units.len()];
        for (group, unit) in now.groups.iter().zip(&self.of_now) {
            if let Some(sum) = unit.and_then(|unit| fresh.get_mut(unit)) {
                *sum.get_mut(group.phase) += self.likes.time(now, group);
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

    /// What a group of the measured text took, its share of Python's time with it.
    pub(super) fn measured_time(&self, group: &Group, unit: Option<Unit>) -> f64 {
        let Some(cost) = unit.and_then(|unit| self.units.get(unit)) else { return 0.0 };
        if self.is_partial && cost.now.time.get(group.phase) <= 0.0 {
            return 0.0;
        }
        share(group.time_ns, cost.before.time.get(group.phase)) * cost.old.get(group.phase)
    }

    /// What a group of today's text takes, its share of Python's time with it.
    pub(super) fn estimated_time(
        &self,
        now: &Costed<'_>,
        group: &Group,
        unit: Option<Unit>,
    ) -> f64 {
        let Some(cost) = unit.and_then(|unit| self.units.get(unit)) else {
            return self.likes.time(now, group);
        };
        if cost.before.time.get(group.phase) > 0.0 {
            share(group.time_ns, cost.now.time.get(group.phase)) * cost.new.get(group.phase)
        } else {
            self.likes.time(now, group)
        }
    }

    /// By how much a statement's operators are called more often than before, where all are by the
    /// same factor.
    pub(super) fn calls_ratio(&self, unit: Unit) -> f64 {
        let Some(cost) = self.units.get(unit) else { return 1.0 };
        let (before, now) = (cost.before.calls.forward, cost.now.calls.forward);
        if before > 0.0 && now > 0.0 && !cost.changed { now / before } else { 1.0 }
    }

    /// What belongs to no line: scaled where operators ran in it.
    pub(super) fn untracked(&self, old: &Profile) -> Vec<Untracked> {
        let mut parts = old.untracked.clone();
        for phase in Phase::ALL {
            let (before, now) = self.adrift[phase];
            let of_phase = parts.iter_mut().filter(|part| part.phase == phase);
            if before > 0.0 {
                of_phase.for_each(|part| part.time_ns *= now / before);
            } else if now > 0.0 && old.lines.is_empty() {
                let name = "operators not called by your code".to_owned();
                parts.push(Untracked { name, phase, time_ns: now });
            }
        }
        parts
    }
}

impl UnitCost {
    /// The measured time times the ratio of both estimates, but for what is not operators' time.
    fn scaled(&self, phase: Phase, fresh: f64, batch_ratio: f64, is_partial: bool) -> f64 {
        let (old, host) = (self.old.get(phase), self.host.get(phase).min(self.old.get(phase)));
        let (before, now) = (self.before.time.get(phase), self.now.time.get(phase));
        let calls = |sums: &Sums| sums.calls[phase];
        if before > 0.0 && now > 0.0 {
            let again = calls(&self.now) / calls(&self.before).max(1.0);
            host * again + (old - host) * (now / before)
        } else if before > 0.0 {
            if is_partial { old } else { host }
        } else if now > 0.0 {
            old + fresh
        } else if phase == Phase::Data {
            old * batch_ratio
        } else {
            old
        }
    }
}

/// Of a line's own time, that in which none of its operators ran: Python's, or on a GPU that in
/// which it waited for the host. It is known of lines that call no other line of the user's and
/// whose operators are all listed.
fn host_time(line: &LineCost) -> PhaseTimes {
    let mut host = PhaseTimes::default();
    let (own, total) = (line.self_time.total(), line.total_time.total());
    if own <= 0.0 || own < 0.99 * total || line.operators.len() >= OPERATORS_PER_LINE {
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

/// How many times the measured batch today's is.
fn batch_ratio(old: &Profile, now: &OpList) -> f64 {
    let size = now.batch.as_ref().and_then(|batch| batch.size);
    match (old.iteration.batch_size, size) {
        (Some(before), Some(now)) if before > 0 => now as f64 / before as f64,
        _ => 1.0,
    }
}

/// Measured over modelled time of operators that are alike, over all lines: what new lines are
/// calibrated with.
#[derive(Debug, Default)]
struct Likes {
    by_name: HashMap<String, f64>,
    of_all: f64,
}

impl Likes {
    fn new(scaled: &Scaled, before: &Costed<'_>) -> Likes {
        let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
        let mut all = (0.0, 0.0);
        for (group, unit) in before.groups.iter().zip(&scaled.of_before) {
            let Some(cost) = unit.and_then(|unit| scaled.units.get(unit)) else { continue };
            let (old, host) = (cost.old.get(group.phase), cost.host.get(group.phase));
            let of_unit = share(group.time_ns, cost.before.time.get(group.phase));
            let measured = of_unit * (old - host).max(0.0);
            for sum in [sums.entry(before.name(group)).or_default(), &mut all] {
                sum.0 += measured;
                sum.1 += group.time_ns;
            }
        }
        let factor = |(measured, modelled): (f64, f64)| {
            let factor = measured / modelled;
            let is_telling = factor > 1.0 / MOST_FACTOR && factor < MOST_FACTOR;
            is_telling.then_some(factor)
        };
        let by_name =
            sums.into_iter().filter_map(|(name, sum)| Some((name.to_owned(), factor(sum)?)));
        Likes { by_name: by_name.collect(), of_all: factor(all).unwrap_or(1.0) }
    }

    fn time(&self, now: &Costed<'_>, group: &Group) -> f64 {
        group.time_ns * self.by_name.get(now.name(group)).copied().unwrap_or(self.of_all)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    let share = part / whole;
    if share.is_finite() { share } else { 0.0 }
}
