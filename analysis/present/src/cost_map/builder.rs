//! The costs of statements, and the measured loop, in the current text.

use std::ops::Range;

use super::{CostMap, LoopCost, StatementCost};
use ridgeline_profile::{FileId, LineCost, MemoryByKind, Phase, PhaseTimes, Profile, Provenance};
use ridgeline_python::syntax::anchor::LineMap;
use ridgeline_python::syntax::index::SourceIndex;
use ridgeline_python::syntax::statements::StatementKind;

/// A statement, or a line outside any statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unit {
    pub(super) first_line: u32,
    pub(super) last_line: u32,
    statement: Option<usize>,
}

/// A recorded line and the statement it is in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedLine {
    unit: Unit,
    /// Index into the profile's lines of this file.
    index: u32,
    changed: bool,
}

/// The maximum number of functions that the lines of one statement belong to: the enclosing
/// function, plus comprehensions and lambdas in the statement. Further functions are ignored.
const MAX_SCOPES: usize = 16;

/// Maps the costs of a file to its current text.
pub(super) struct Builder<'a> {
    pub(super) profile: &'a Profile,
    pub(super) file: FileId,
    pub(super) index: &'a SourceIndex,
    pub(super) lines: &'a [LineCost],
    pub(super) map: LineMap,
}

impl Builder<'_> {
    pub(super) fn build(self) -> CostMap {
        let mut placed: Vec<PlacedLine> = Vec::with_capacity(self.lines.len());
        let mut unit = Unit::default();
        for (at, line) in (0..).zip(self.lines) {
            if let Some(place) = self.map.place(line.line) {
                // The lines of one statement are mostly consecutive.
                if !(unit.first_line..=unit.last_line).contains(&place.line) {
                    unit = self.unit(place.line);
                }
                placed.push(PlacedLine { unit, index: at, changed: place.changed });
            }
        }
        placed.sort_unstable();
        let mut statements = Vec::with_capacity(placed.len());
        let mut first = 0;
        for group in placed.chunk_by(|a, b| a.unit == b.unit) {
            statements.push(self.statement(group, first));
            first += group.len();
        }
        CostMap {
            file: Some(self.file),
            definitions: self.definitions(),
            scopes: self.scopes(&statements),
            training_loop: self.training_loop(),
            statements,
            lines: placed.iter().map(|placed| placed.index).collect(),
            map: self.map,
        }
    }

    pub(super) fn unit(&self, line: u32) -> Unit {
        let found = self.index.statement_on_line(line);
        match found.and_then(|at| Some((at, self.index.statements().get(at)?))) {
            Some((at, found)) if !found.broken => Unit {
                first_line: found.first_line,
                last_line: found.last_line,
                statement: Some(at),
            },
            _ => Unit { first_line: line, last_line: line, statement: None },
        }
    }

    pub(super) fn span(&self, unit: Unit) -> Range<usize> {
        match unit.statement.and_then(|statement| self.index.statements().get(statement)) {
            Some(statement) => statement.header.clone(),
            None => self.index.lines().trimmed(self.index.text(), unit.first_line),
        }
    }

    /// Joins the recorded lines of one statement.
    ///
    /// Self times and memory are disjoint, so they are summed. Total times are disjoint between the
    /// lines of one function, because a frame is at one line at a time, so they are summed too. But
    /// a comprehension or lambda within the statement runs in its own frame, and its time is
    /// already part of the function's line. So totals are summed by function, and the largest sum
    /// is used. A function that calls itself from this statement still counts twice, so no phase
    /// may exceed that of the iteration.
    fn statement(&self, group: &[PlacedLine], first: usize) -> StatementCost {
        let unit = group.first().map(|placed| placed.unit).unwrap_or_default();
        let kind = unit.statement.and_then(|at| Some(self.index.statements().get(at)?.kind));
        let mut cost = StatementCost {
            span: self.span(unit),
            first_line: unit.first_line,
            last_line: unit.last_line,
            statement: unit.statement,
            is_for: kind == Some(StatementKind::For),
            lines: first..first + group.len(),
            ..StatementCost::default()
        };
        for line in self.recorded(group) {
            cost.self_time += line.self_time;
            cost.self_memory += line.self_memory;
            cost.provenance = cost.provenance.max(line.provenance);
            if let Some(time) = line.device_time {
                let sum = cost.device_time.get_or_insert_default();
                sum.kernel_ns += time.kernel_ns;
                sum.launch_ns += time.launch_ns;
                sum.idle_ns += time.idle_ns;
            }
        }
        if let (Some(only), [_]) = (self.recorded(group).next(), group) {
            (cost.total_time, cost.total_memory) = (only.total_time, only.total_memory);
            cost.calls = only.calls;
        } else {
            self.add_totals(&mut cost, group);
            // The first line of a multi-line call runs again after its arguments, so the lower
            // median is the number of calls that a reader would expect.
            let mut calls: Vec<f64> = self.recorded(group).map(|line| line.calls).collect();
            calls.retain(|calls| *calls > 0.0);
            calls.sort_unstable_by(f64::total_cmp);
            let median = calls.get(calls.len().saturating_sub(1) / 2);
            cost.calls = median.copied().unwrap_or_default();
        }
        let replaced = group.iter().any(|placed| placed.changed);
        if replaced || self.changed(unit.first_line, unit.last_line) {
            cost.provenance = Provenance::Stale;
        }
        cost
    }

    fn recorded<'a>(&'a self, group: &'a [PlacedLine]) -> impl Iterator<Item = &'a LineCost> {
        group.iter().filter_map(|placed| self.lines.get(placed.index as usize))
    }

    fn add_totals(&self, cost: &mut StatementCost, group: &[PlacedLine]) {
        let lines = || self.recorded(group);
        let mut seen: Vec<&str> = Vec::new();
        for line in lines() {
            let scope = line.scope.as_str();
            if seen.contains(&scope) || seen.len() >= MAX_SCOPES {
                continue;
            }
            seen.push(scope);
            let (mut time, mut memory) = (PhaseTimes::default(), MemoryByKind::default());
            for line in lines().filter(|line| line.scope == scope) {
                time += line.total_time;
                memory += line.total_memory;
            }
            if time.total() > cost.total_time.total() {
                cost.total_time = time;
            }
            if memory.total() > cost.total_memory.total() {
                cost.total_memory = memory;
            }
        }
        self.limit(&mut cost.total_time);
        if cost.total_memory.total() > self.profile.memory.peak_bytes {
            cost.total_memory = min_by_kind(cost.total_memory, self.profile.memory.at_peak);
        }
    }

    /// Limits each phase to its time in the whole iteration.
    pub(super) fn limit(&self, time: &mut PhaseTimes) {
        let iteration = self.profile.iteration.phases;
        if time.total() > iteration.total() && iteration.total() > 0.0 {
            for phase in Phase::ALL {
                let part = time.get_mut(phase);
                *part = part.min(iteration.get(phase));
            }
        }
    }

    /// Returns whether these lines differ from the text that ran, or a line between them was
    /// deleted. Blank lines and lines with only a comment do not count.
    pub(super) fn changed(&self, first: u32, last: u32) -> bool {
        let checksums = self.index.lines().checksums();
        let mut before: Option<u32> = None;
        for line in first..=last.min(self.index.lines().count()) {
            let is_blank = checksums.get(line as usize - 1).is_none_or(|&checksum| checksum == 0);
            let origin = self.map.origin(line);
            match origin {
                _ if is_blank => continue,
                None if self.is_comment(line) => continue,
                None => return true,
                Some(origin) => {
                    let follows = before.is_none_or(|before| {
                        before < origin && self.map.nothing_between(before, origin)
                    });
                    if !follows {
                        return true;
                    }
                    before = Some(origin);
                }
            }
        }
        false
    }

    fn is_comment(&self, line: u32) -> bool {
        let text = self.index.text().get(self.index.lines().trimmed(self.index.text(), line));
        text.is_some_and(|text| text.starts_with('#'))
    }

    fn training_loop(&self) -> Option<LoopCost> {
        let (_, line) = self.profile.iteration.loop_line.filter(|(file, _)| *file == self.file)?;
        let place = self.map.place(line)?;
        let unit = self.unit(place.line);
        let header = self.span(unit);
        let end = unit
            .statement
            .and_then(|at| self.index.statements().get(at))
            .map_or(header.end, |statement| statement.end.max(header.end));
        let last = self.index.lines().line_of(end.saturating_sub(1).max(header.start));
        let stale = place.changed || self.changed(unit.first_line, last);
        Some(LoopCost {
            span: header.start..end,
            header,
            first_line: unit.first_line,
            last_line: unit.last_line,
            provenance: match &self.profile.estimate {
                _ if stale => Provenance::Stale,
                Some(_) => Provenance::Estimated,
                None => Provenance::Measured,
            },
        })
    }
}

/// The minimum of each kind.
pub(super) fn min_by_kind(a: MemoryByKind, b: MemoryByKind) -> MemoryByKind {
    MemoryByKind {
        weights: a.weights.min(b.weights),
        gradients: a.gradients.min(b.gradients),
        optimizer_state: a.optimizer_state.min(b.optimizer_state),
        activations: a.activations.min(b.activations),
        batch: a.batch.min(b.batch),
        temporaries: a.temporaries.min(b.temporaries),
        other: a.other.min(b.other),
    }
}
