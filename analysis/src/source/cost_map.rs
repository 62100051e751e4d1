//! [`CostMap`]: the costs of one file of a profile, on spans of today's text.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::anchor::LineMap;
use super::index::SourceIndex;
use super::statements::{ScopeKind, StatementKind};
use crate::profile::{
    DeviceTime, FileId, LineCost, MemoryByKind, ModuleId, Phase, PhaseTimes, Profile, Provenance,
};

/// The costs of one file, on spans of today's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostMap {
    /// The file, as the profile knows it.
    pub file: Option<FileId>,
    /// Statements that cost something, by place; one for each line at the most.
    pub statements: Vec<StatementCost>,
    /// Statements that made modules, by place: what those modules cost.
    pub definitions: Vec<DefinitionCost>,
    /// Functions and classes that cost something, by place.
    pub scopes: Vec<ScopeCost>,
    /// The loop whose iterations were measured, where it stands in this file.
    pub training_loop: Option<LoopCost>,
    /// Time of the file's own lines, without what they call in other files.
    pub self_time: PhaseTimes,
    /// Memory alive at the peak that the file's own lines made.
    pub self_memory: MemoryByKind,
}

/// What a statement costs in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementCost {
    /// Bytes of the statement; of a compound statement, its header.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the span, counted from 1.
    pub last_line: u32,
    /// Index into the text's statements; nothing where the line could not be parsed.
    pub statement: Option<usize>,
    /// What it is.
    pub is_for: bool,
    /// Indices into the profile's lines of this file.
    pub lines: Vec<usize>,
    /// Of these lines themselves.
    pub self_time: PhaseTimes,
    /// With everything that they call.
    pub total_time: PhaseTimes,
    /// How often it ran in one iteration.
    pub calls: f64,
    /// On a GPU.
    pub device_time: Option<DeviceTime>,
    /// Alive at the peak and made here.
    pub self_memory: MemoryByKind,
    /// Alive at the peak and made here or in calls from here.
    pub total_memory: MemoryByKind,
    /// Module instances that ran from here.
    pub modules: Vec<ModuleId>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// What the modules cost that a statement made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefinitionCost {
    /// Bytes of the statement; of a compound statement, its header.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the span, counted from 1.
    pub last_line: u32,
    /// The modules; none is part of another one of them.
    pub modules: Vec<ModuleId>,
    /// Of all of them, their children included.
    pub total_time: PhaseTimes,
    /// Alive at the peak, owned by or made in them.
    pub memory: MemoryByKind,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// What a function or class costs in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeCost {
    /// Index into the text's scopes.
    pub scope: usize,
    /// Bytes of its name.
    pub name: Range<usize>,
    /// Bytes of all of it.
    pub span: Range<usize>,
    /// The line of its name, counted from 1.
    pub line: u32,
    /// A class, not a function.
    pub is_class: bool,
    /// With everything that it calls.
    pub total_time: PhaseTimes,
    /// Alive at the peak and made by it, or by what it calls.
    pub total_memory: MemoryByKind,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// Where the measured loop is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopCost {
    /// Bytes of the loop's header.
    pub header: Range<usize>,
    /// Bytes of the loop, its body included.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the header, counted from 1.
    pub last_line: u32,
    /// Where the numbers come from: stale when anything in the loop changed.
    pub provenance: Provenance,
}

impl CostMap {
    /// Puts the costs of one file of a profile on today's text.
    pub fn build(profile: &Profile, file: FileId, index: &SourceIndex) -> CostMap {
        let lines = profile.lines.get(file.0 as usize).map_or(&[][..], Vec::as_slice);
        let fingerprint =
            profile.files.get(file.0 as usize).map_or(&[][..], |file| &file.fingerprint);
        let map = LineMap::new(fingerprint, index.lines().checksums());
        let builder = Builder { profile, file, index, lines, map };
        builder.build()
    }

    /// The cost of the statement on a line, counted from 1.
    pub fn statement_on_line(&self, line: u32) -> Option<&StatementCost> {
        let at = self.statements.partition_point(|cost| cost.last_line < line);
        self.statements.get(at).filter(|cost| cost.first_line <= line)
    }

    /// What the modules cost that were made on a line, counted from 1.
    pub fn definition_on_line(&self, line: u32) -> Option<&DefinitionCost> {
        let at = self.definitions.partition_point(|cost| cost.last_line < line);
        self.definitions.get(at).filter(|cost| cost.first_line <= line)
    }
}

/// A statement, or a line that belongs to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Unit {
    first_line: u32,
    last_line: u32,
    statement: Option<usize>,
}

struct Builder<'a> {
    profile: &'a Profile,
    file: FileId,
    index: &'a SourceIndex,
    lines: &'a [LineCost],
    map: LineMap,
}

impl Builder<'_> {
    fn build(&self) -> CostMap {
        let mut by_unit: BTreeMap<Unit, (Vec<usize>, bool)> = BTreeMap::new();
        let mut self_time = PhaseTimes::default();
        let mut self_memory = MemoryByKind::default();
        for (at, line) in self.lines.iter().enumerate() {
            self_time += line.self_time;
            self_memory += line.self_memory;
            if let Some(place) = self.map.place(line.line) {
                let (lines, changed) = by_unit.entry(self.unit(place.line)).or_default();
                lines.push(at);
                *changed |= place.changed;
            }
        }
        let statements: Vec<StatementCost> = by_unit
            .into_iter()
            .map(|(unit, (lines, changed))| self.statement(unit, lines, changed))
            .collect();
        CostMap {
            file: Some(self.file),
            definitions: self.definitions(),
            scopes: self.scopes(&statements),
            training_loop: self.training_loop(),
            statements,
            self_time,
            self_memory,
        }
    }

    fn unit(&self, line: u32) -> Unit {
        match self.index.statement_on_line(line) {
            Some(statement) if !self.index.statements()[statement].broken => {
                let found = &self.index.statements()[statement];
                Unit {
                    first_line: found.first_line,
                    last_line: found.last_line,
                    statement: Some(statement),
                }
            }
            _ => Unit { first_line: line, last_line: line, statement: None },
        }
    }

    fn span(&self, unit: Unit) -> Range<usize> {
        match unit.statement.and_then(|statement| self.index.statements().get(statement)) {
            Some(statement) => statement.header.clone(),
            None => self.index.lines().trimmed(self.index.text(), unit.first_line),
        }
    }

    fn statement(&self, unit: Unit, lines: Vec<usize>, changed: bool) -> StatementCost {
        let mut cost = StatementCost {
            span: self.span(unit),
            first_line: unit.first_line,
            last_line: unit.last_line,
            statement: unit.statement,
            is_for: unit
                .statement
                .is_some_and(|at| self.index.statements()[at].kind == StatementKind::For),
            provenance: Provenance::Measured,
            ..StatementCost::default()
        };
        for &at in &lines {
            let line = &self.lines[at];
            cost.self_time += line.self_time;
            cost.total_time += line.total_time;
            cost.calls = cost.calls.max(line.calls);
            cost.self_memory += line.self_memory;
            cost.total_memory += line.total_memory;
            cost.provenance = cost.provenance.max(line.provenance);
            cost.modules.extend(&line.modules);
            if let Some(time) = line.device_time {
                let sum = cost.device_time.get_or_insert_default();
                sum.kernel_ns += time.kernel_ns;
                sum.launch_ns += time.launch_ns;
                sum.idle_ns += time.idle_ns;
            }
        }
        if changed || self.changed(unit.first_line, unit.last_line) {
            cost.provenance = Provenance::Stale;
        }
        cost.lines = lines;
        cost
    }

    fn changed(&self, first: u32, last: u32) -> bool {
        let checksums = self.index.lines().checksums();
        (first..=last).any(|line| {
            self.map.origin(line).is_none()
                && checksums.get(line as usize - 1).is_some_and(|&checksum| checksum != 0)
        })
    }

    fn definitions(&self) -> Vec<DefinitionCost> {
        let mut by_unit: BTreeMap<Unit, (Vec<ModuleId>, bool)> = BTreeMap::new();
        let mut seen: HashSet<(Unit, u32)> = HashSet::new();
        for (at, module) in self.profile.modules.iter().enumerate() {
            let Ok(id) = u32::try_from(at) else { break };
            for &(file, line) in &module.definition {
                let Some(place) = self.map.place(line).filter(|_| file == self.file) else {
                    continue;
                };
                let unit = self.unit(place.line);
                if !seen.insert((unit, id)) {
                    continue;
                }
                let within = module.parent.is_some_and(|parent| seen.contains(&(unit, parent.0)));
                let (modules, changed) = by_unit.entry(unit).or_default();
                if !within {
                    modules.push(ModuleId(id));
                }
                *changed |= place.changed;
            }
        }
        by_unit
            .into_iter()
            .map(|(unit, (modules, changed))| {
                let mut cost = DefinitionCost {
                    span: self.span(unit),
                    first_line: unit.first_line,
                    last_line: unit.last_line,
                    ..DefinitionCost::default()
                };
                for id in &modules {
                    if let Some(module) = self.profile.modules.get(id.0 as usize) {
                        cost.total_time += module.total_time;
                        cost.memory += module.memory;
                    }
                }
                cost.modules = modules;
                if changed || self.changed(unit.first_line, unit.last_line) {
                    cost.provenance = Provenance::Stale;
                }
                cost
            })
            .collect()
    }

    fn scopes(&self, statements: &[StatementCost]) -> Vec<ScopeCost> {
        let mut by_scope: BTreeMap<usize, ScopeCost> = BTreeMap::new();
        for cost in statements {
            let Some(statement) = cost.statement.and_then(|at| self.index.statements().get(at))
            else {
                continue;
            };
            let at = statement.scope as usize;
            let Some(scope) = self.index.scopes().get(at) else { continue };
            if scope.kind == ScopeKind::File {
                continue;
            }
            let sum = by_scope.entry(at).or_insert_with(|| ScopeCost {
                scope: at,
                name: scope.name.clone(),
                span: scope.span.clone(),
                line: self.index.lines().line_of(scope.name.start),
                is_class: scope.kind == ScopeKind::Class,
                ..ScopeCost::default()
            });
            sum.total_time += cost.total_time;
            sum.total_memory += cost.total_memory;
            sum.provenance = sum.provenance.max(cost.provenance);
        }
        let limit = self.profile.iteration.phases;
        for cost in by_scope.values_mut() {
            for phase in Phase::ALL {
                let time = cost.total_time.get_mut(phase);
                *time = time.min(limit.get(phase));
            }
        }
        by_scope.into_values().collect()
    }

    fn training_loop(&self) -> Option<LoopCost> {
        let (_, line) = self.profile.iteration.loop_line.filter(|(file, _)| *file == self.file)?;
        let place = self.map.place(line)?;
        let unit = self.unit(place.line);
        let header = self.span(unit);
        let end = unit
            .statement
            .and_then(|at| self.index.statements().get(at))
            .map_or(header.end, |statement| statement.end);
        let last = self.index.lines().line_of(end);
        let stale = place.changed || self.changed(unit.first_line, last);
        Some(LoopCost {
            span: header.start..end.max(header.end),
            header,
            first_line: unit.first_line,
            last_line: unit.last_line,
            provenance: if stale { Provenance::Stale } else { Provenance::Measured },
        })
    }
}
