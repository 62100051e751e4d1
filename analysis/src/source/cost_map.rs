//! [`CostMap`]: the costs of one file of a profile, on spans of today's text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::anchor::LineMap;
use super::index::SourceIndex;
use super::statements::{Scope, ScopeKind, StatementKind};
use crate::profile::{
    DeviceTime, FileId, LineCost, MODULES_PER_LINE, MemoryByKind, ModuleId, Phase, PhaseTimes,
    Profile, Provenance,
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

/// A module may be asked for this many of its parents.
const MAX_ANCESTORS: usize = 64;

struct Builder<'a> {
    profile: &'a Profile,
    file: FileId,
    index: &'a SourceIndex,
    lines: &'a [LineCost],
    map: LineMap,
}

impl Builder<'_> {
    fn build(&self) -> CostMap {
        let mut placed: Vec<(Unit, usize, bool)> = Vec::with_capacity(self.lines.len());
        let mut self_time = PhaseTimes::default();
        let mut self_memory = MemoryByKind::default();
        for (at, line) in self.lines.iter().enumerate() {
            self_time += line.self_time;
            self_memory += line.self_memory;
            if let Some(place) = self.map.place(line.line) {
                placed.push((self.unit(place.line), at, place.changed));
            }
        }
        placed.sort_unstable();
        let statements: Vec<StatementCost> = placed
            .chunk_by(|(a, ..), (b, ..)| a == b)
            .map(|group| self.statement(group[0].0, group))
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

    fn span(&self, unit: Unit) -> Range<usize> {
        match unit.statement.and_then(|statement| self.index.statements().get(statement)) {
            Some(statement) => statement.header.clone(),
            None => self.index.lines().trimmed(self.index.text(), unit.first_line),
        }
    }

    /// Joins the recorded lines of one statement.
    ///
    /// Self times and memory are disjoint by their nature, so they are added. Of totals, a frame
    /// stands at one line at a time, so the lines of one function are disjoint too, and are added;
    /// but a comprehension or lambda within the statement has a frame of its own below, whose time
    /// the function's line already holds. So lines are added by function, and the largest sum is
    /// taken. A function that calls itself from here counts twice even so, which is why no phase
    /// is let above the iteration's own.
    fn statement(&self, unit: Unit, group: &[(Unit, usize, bool)]) -> StatementCost {
        let kind = unit.statement.and_then(|at| Some(self.index.statements().get(at)?.kind));
        let mut cost = StatementCost {
            span: self.span(unit),
            first_line: unit.first_line,
            last_line: unit.last_line,
            statement: unit.statement,
            is_for: kind == Some(StatementKind::For),
            lines: group.iter().map(|(_, at, _)| *at).collect(),
            ..StatementCost::default()
        };
        let mut calls = Vec::new();
        for &(_, at, _) in group {
            let line = &self.lines[at];
            cost.self_time += line.self_time;
            cost.self_memory += line.self_memory;
            cost.provenance = cost.provenance.max(line.provenance);
            for module in &line.modules {
                if !cost.modules.contains(module) && cost.modules.len() < MODULES_PER_LINE {
                    cost.modules.push(*module);
                }
            }
            if let Some(time) = line.device_time {
                let sum = cost.device_time.get_or_insert_default();
                sum.kernel_ns += time.kernel_ns;
                sum.launch_ns += time.launch_ns;
                sum.idle_ns += time.idle_ns;
            }
            if line.calls > 0.0 {
                calls.push(line.calls);
            }
        }
        if let [(_, only, _)] = group {
            let line = &self.lines[*only];
            (cost.total_time, cost.total_memory) = (line.total_time, line.total_memory);
        } else {
            self.add_totals(&mut cost, group);
        }
        // The first line of a call over several lines runs again after its arguments, so the
        // lower median is what a person would count.
        calls.sort_unstable_by(f64::total_cmp);
        cost.calls = calls.get(calls.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let replaced = group.iter().any(|(.., changed)| *changed);
        if replaced || self.changed(unit.first_line, unit.last_line) {
            cost.provenance = Provenance::Stale;
        }
        cost
    }

    fn add_totals(&self, cost: &mut StatementCost, group: &[(Unit, usize, bool)]) {
        let lines = || group.iter().map(|(_, at, _)| &self.lines[*at]);
        let mut seen: Vec<&str> = Vec::new();
        for line in lines() {
            let scope = line.scope.as_str();
            if seen.contains(&scope) || seen.len() >= MODULES_PER_LINE {
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
            cost.total_memory = least(cost.total_memory, self.profile.memory.at_peak);
        }
    }

    /// No part of the iteration takes longer than the iteration.
    fn limit(&self, time: &mut PhaseTimes) {
        let whole = self.profile.iteration.phases;
        if time.total() > whole.total() && whole.total() > 0.0 {
            for phase in Phase::ALL {
                let part = time.get_mut(phase);
                *part = part.min(whole.get(phase));
            }
        }
    }

    /// Anything on these lines reads differently from what ran, or a line of it was taken out. What
    /// is blank or a comment alone does not count.
    fn changed(&self, first: u32, last: u32) -> bool {
        let mut before: Option<u32> = None;
        for line in first..=last.min(self.index.lines().count()) {
            if !self.is_code(line) {
                continue;
            }
            let Some(origin) = self.map.origin(line) else { return true };
            let follows = before
                .is_none_or(|before| before < origin && self.map.nothing_between(before, origin));
            if !follows {
                return true;
            }
            before = Some(origin);
        }
        false
    }

    fn is_code(&self, line: u32) -> bool {
        let text = self.index.text().get(self.index.lines().trimmed(self.index.text(), line));
        text.is_some_and(|text| !text.is_empty() && !text.starts_with('#'))
    }

    fn definitions(&self) -> Vec<DefinitionCost> {
        let mut by_unit: BTreeMap<Unit, (Vec<ModuleId>, bool)> = BTreeMap::new();
        let mut made_at: HashSet<(Unit, u32)> = HashSet::new();
        for (at, module) in self.profile.modules.iter().enumerate() {
            let Ok(id) = u32::try_from(at) else { break };
            for &(file, line) in &module.definition {
                if file != self.file {
                    continue;
                }
                let Some(place) = self.map.place(line) else { continue };
                let unit = self.unit(place.line);
                if !made_at.insert((unit, id)) {
                    continue;
                }
                let (modules, changed) = by_unit.entry(unit).or_default();
                *changed |= place.changed;
                // A module's cost has its children's within, and they were mostly made there too.
                if !self.ancestors(id).any(|parent| made_at.contains(&(unit, parent))) {
                    modules.push(ModuleId(id));
                }
            }
        }
        let definition = |(unit, (modules, replaced)): (Unit, (Vec<ModuleId>, bool))| {
            let mut cost = DefinitionCost {
                span: self.span(unit),
                first_line: unit.first_line,
                last_line: unit.last_line,
                ..DefinitionCost::default()
            };
            for module in modules.iter().filter_map(|id| self.profile.modules.get(id.0 as usize)) {
                cost.total_time += module.total_time;
                cost.memory += module.memory;
            }
            self.limit(&mut cost.total_time);
            cost.modules = modules;
            if replaced || self.changed(unit.first_line, unit.last_line) {
                cost.provenance = Provenance::Stale;
            }
            cost
        };
        by_unit.into_iter().map(definition).collect()
    }

    fn ancestors(&self, module: u32) -> impl Iterator<Item = u32> {
        let parent = |id: u32| Some(self.profile.modules.get(id as usize)?.parent?.0);
        std::iter::successors(parent(module), move |&id| parent(id)).take(MAX_ANCESTORS)
    }

    /// A function's frame stands at one of its lines at a time, so its total is their sum. A
    /// class's is what its instances cost, if it is a module's; else its costliest method's, or
    /// what its methods' own lines cost, whichever is more: which method calls which is not known.
    fn scopes(&self, statements: &[StatementCost]) -> Vec<ScopeCost> {
        let mut by_scope: BTreeMap<usize, ScopeCost> = BTreeMap::new();
        let mut own_of_class: BTreeMap<usize, PhaseTimes> = BTreeMap::new();
        let scopes = self.index.scopes();
        for cost in statements {
            let known = cost.statement.and_then(|at| self.index.statements().get(at));
            // A header belongs to the scope that it opens only as text; it runs in the one around.
            let at = match known {
                Some(statement) => statement.scope as usize,
                None => self.index.scope_at(cost.span.start),
            };
            let Some(scope) = scopes.get(at).filter(|scope| scope.kind != ScopeKind::File) else {
                continue;
            };
            let sum = by_scope.entry(at).or_insert_with(|| self.no_cost(at, scope));
            sum.total_time += cost.total_time;
            sum.total_memory += cost.total_memory;
            sum.provenance = sum.provenance.max(cost.provenance);
            let class = scope.parent.filter(|_| scope.kind == ScopeKind::Function);
            if let Some(class) = class
                && scopes.get(class as usize).is_some_and(|class| class.kind == ScopeKind::Class)
            {
                *own_of_class.entry(class as usize).or_default() += cost.self_time;
            }
        }
        for cost in by_scope.values_mut() {
            self.limit(&mut cost.total_time);
            cost.total_memory = least(cost.total_memory, self.profile.memory.at_peak);
        }
        let instances = self.instances_by_type();
        for (class, own) in own_of_class {
            let Some(scope) = scopes.get(class) else { continue };
            let mut sum = self.no_cost(class, scope);
            let name = self.index.text().get(scope.name.clone()).unwrap_or_default();
            match instances.get(name) {
                Some((time, memory)) => (sum.total_time, sum.total_memory) = (*time, *memory),
                None => sum.total_time = own,
            }
            let methods = by_scope.values().filter(|cost| {
                scopes
                    .get(cost.scope)
                    .is_some_and(|method| method.parent == u32::try_from(class).ok())
            });
            for method in methods {
                sum.provenance = sum.provenance.max(method.provenance);
                if !instances.contains_key(name) {
                    if method.total_time.total() > sum.total_time.total() {
                        sum.total_time = method.total_time;
                    }
                    if method.total_memory.total() > sum.total_memory.total() {
                        sum.total_memory = method.total_memory;
                    }
                }
            }
            self.limit(&mut sum.total_time);
            by_scope.insert(class, sum);
        }
        let mut costs: Vec<ScopeCost> = by_scope.into_values().collect();
        for cost in &mut costs {
            let first = self.index.lines().line_of(cost.span.start);
            let last = self.index.lines().line_of(cost.span.end.saturating_sub(1));
            if cost.provenance != Provenance::Stale && self.changed(first, last) {
                cost.provenance = Provenance::Stale;
            }
        }
        costs
    }

    fn no_cost(&self, at: usize, scope: &Scope) -> ScopeCost {
        ScopeCost {
            scope: at,
            name: scope.name.clone(),
            span: scope.span.clone(),
            line: self.index.lines().line_of(scope.name.start),
            is_class: scope.kind == ScopeKind::Class,
            ..ScopeCost::default()
        }
    }

    /// What the instances of each module type cost, those within another one of the type left out.
    fn instances_by_type(&self) -> HashMap<&str, (PhaseTimes, MemoryByKind)> {
        let modules = &self.profile.modules;
        let mut found: HashMap<&str, (PhaseTimes, MemoryByKind)> = HashMap::new();
        for (at, module) in modules.iter().enumerate() {
            let Ok(id) = u32::try_from(at) else { break };
            let is_same = |parent: u32| {
                modules
                    .get(parent as usize)
                    .is_some_and(|parent| parent.type_name == module.type_name)
            };
            if !self.ancestors(id).any(is_same) {
                let (time, memory) = found.entry(module.type_name.as_str()).or_default();
                *time += module.total_time;
                *memory += module.memory;
            }
        }
        found
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
            provenance: if stale { Provenance::Stale } else { Provenance::Measured },
        })
    }
}

fn least(a: MemoryByKind, b: MemoryByKind) -> MemoryByKind {
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
