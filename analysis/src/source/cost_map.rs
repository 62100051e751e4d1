//! [`CostMap`]: the costs of one file of a profile, on spans of today's text.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::anchor::LineMap;
use super::index::SourceIndex;
use super::statements::{Scope, ScopeKind, StatementKind};
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
    /// Indices into the profile's lines of this file, by statement. In one list, because a map of
    /// a long file is made anew with each key, and thousands of short lists take longest of all.
    lines: Vec<u32>,
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
    /// Its recorded lines: a range of [`CostMap::lines`].
    lines: Range<usize>,
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

    /// Time of the file's own lines without what they call in other files, and the memory alive at
    /// the peak that they made; deleted lines are among them.
    pub fn file_total(&self, profile: &Profile) -> (PhaseTimes, MemoryByKind) {
        let lines = self.file.and_then(|file| profile.lines.get(file.0 as usize));
        lines.into_iter().flatten().fold(Default::default(), |(mut time, mut memory), line| {
            time += line.self_time;
            memory += line.self_memory;
            (time, memory)
        })
    }

    /// The recorded lines of a statement.
    pub fn recorded_lines<'a>(
        &'a self,
        profile: &'a Profile,
        cost: &StatementCost,
    ) -> impl Iterator<Item = &'a LineCost> {
        let lines = self.file.and_then(|file| profile.lines.get(file.0 as usize));
        let at = self.lines.get(cost.lines.clone()).unwrap_or_default();
        at.iter().filter_map(move |&at| lines?.get(at as usize))
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    first_line: u32,
    last_line: u32,
    statement: Option<usize>,
}

/// A recorded line, and where it is today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    unit: Unit,
    /// Index into the profile's lines of the file.
    at: u32,
    changed: bool,
}

/// A statement's lines belong to this many functions at the most: its own, and comprehensions and
/// lambdas in it. More are not looked at.
const MAX_SCOPES: usize = 16;

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
        let mut placed: Vec<Placed> = Vec::with_capacity(self.lines.len());
        let mut unit = Unit::default();
        for (at, line) in (0..).zip(self.lines) {
            if let Some(place) = self.map.place(line.line) {
                // Lines of one statement mostly follow each other.
                if !(unit.first_line..=unit.last_line).contains(&place.line) {
                    unit = self.unit(place.line);
                }
                placed.push(Placed { unit, at, changed: place.changed });
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
            lines: placed.iter().map(|placed| placed.at).collect(),
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
    fn statement(&self, group: &[Placed], first: usize) -> StatementCost {
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
            // The first line of a call over several lines runs again after its arguments, so the
            // lower median is what a person would count.
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

    fn recorded<'a>(&'a self, group: &'a [Placed]) -> impl Iterator<Item = &'a LineCost> {
        group.iter().filter_map(|placed| self.lines.get(placed.at as usize))
    }

    fn add_totals(&self, cost: &mut StatementCost, group: &[Placed]) {
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

    fn definitions(&self) -> Vec<DefinitionCost> {
        let mut made: Vec<(Unit, u32, bool)> = Vec::new();
        for (id, module) in (0_u32..).zip(&self.profile.modules) {
            for &(file, line) in &module.definition {
                if file == self.file
                    && let Some(place) = self.map.place(line)
                {
                    made.push((self.unit(place.line), id, place.changed));
                }
            }
        }
        made.sort_unstable();
        made.dedup_by_key(|(unit, id, _)| (*unit, *id));
        let definition = |group: &[(Unit, u32, bool)]| {
            let (unit, ..) = group.first().copied().unwrap_or_default();
            let mut cost = DefinitionCost {
                span: self.span(unit),
                first_line: unit.first_line,
                last_line: unit.last_line,
                ..DefinitionCost::default()
            };
            let made_here = |id: u32| group.binary_search_by_key(&id, |(_, id, _)| *id).is_ok();
            for &(_, id, _) in group {
                // A module's cost has its children's within, and they were mostly made there too.
                if self.ancestors(id).any(made_here) {
                    continue;
                }
                if let Some(module) = self.profile.modules.get(id as usize) {
                    cost.total_time += module.total_time;
                    cost.memory += module.memory;
                    cost.provenance = cost.provenance.max(module.provenance);
                    cost.modules.push(ModuleId(id));
                }
            }
            self.limit(&mut cost.total_time);
            let replaced = group.iter().any(|(.., changed)| *changed);
            if replaced || self.changed(unit.first_line, unit.last_line) {
                cost.provenance = Provenance::Stale;
            }
            cost
        };
        made.chunk_by(|(a, ..), (b, ..)| a == b).map(definition).collect()
    }

    fn ancestors(&self, module: u32) -> impl Iterator<Item = u32> {
        let parent = |id: u32| Some(self.profile.modules.get(id as usize)?.parent?.0);
        std::iter::successors(parent(module), move |&id| parent(id)).take(MAX_ANCESTORS)
    }

    /// A function's frame stands at one of its lines at a time, so its total is their sum. A
    /// class's is what its instances cost, if it is a module's; else its costliest method's, or
    /// what its methods' own lines cost, whichever is more: which method calls which is not known.
    fn scopes(&self, statements: &[StatementCost]) -> Vec<ScopeCost> {
        let scopes = self.index.scopes();
        // By scope, where in the list it is.
        let mut slots: Vec<Option<usize>> = vec![None; scopes.len()];
        let mut by_scope: Vec<(ScopeCost, PhaseTimes)> = Vec::new();
        for cost in statements {
            // A header belongs to the scope that it opens only as text; it runs in the one around.
            let known = cost.statement.and_then(|at| self.index.statements().get(at));
            let at = match known {
                Some(statement) => statement.scope as usize,
                None => self.index.scope_at(cost.span.start),
            };
            let Some(scope) = scopes.get(at).filter(|scope| scope.kind != ScopeKind::File) else {
                continue;
            };
            let slot = *slots[at].get_or_insert_with(|| {
                by_scope.push((self.no_cost(at, scope), PhaseTimes::default()));
                by_scope.len() - 1
            });
            let (sum, own) = &mut by_scope[slot];
            sum.total_time += cost.total_time;
            sum.total_memory += cost.total_memory;
            sum.provenance = sum.provenance.max(cost.provenance);
            *own += cost.self_time;
        }
        let instances = self.instances_by_type();
        let mut classes: BTreeMap<usize, (ScopeCost, PhaseTimes)> = BTreeMap::new();
        for (cost, own) in &mut by_scope {
            self.limit(&mut cost.total_time);
            cost.total_memory = least(cost.total_memory, self.profile.memory.at_peak);
            let class = scopes.get(cost.scope).and_then(|scope| scope.parent).unwrap_or(0) as usize;
            let Some(scope) = scopes.get(class).filter(|scope| scope.kind == ScopeKind::Class)
            else {
                continue;
            };
            if cost.is_class {
                continue;
            }
            let (sum, own_sum) = classes
                .entry(class)
                .or_insert_with(|| (self.no_cost(class, scope), PhaseTimes::default()));
            *own_sum += *own;
            sum.provenance = sum.provenance.max(cost.provenance);
            if cost.total_time.total() > sum.total_time.total() {
                sum.total_time = cost.total_time;
            }
            if cost.total_memory.total() > sum.total_memory.total() {
                sum.total_memory = cost.total_memory;
            }
        }
        for (class, (mut sum, own)) in classes {
            let name = self.index.text().get(sum.name.clone()).unwrap_or_default();
            if let Some((time, memory)) = instances.get(name) {
                (sum.total_time, sum.total_memory) = (*time, *memory);
            } else if own.total() > sum.total_time.total() {
                sum.total_time = own;
            }
            self.limit(&mut sum.total_time);
            // A class's own body, which runs once, is not what the class costs.
            match slots[class] {
                Some(slot) => by_scope[slot] = (sum, own),
                None => by_scope.push((sum, own)),
            }
        }
        let mut costs: Vec<ScopeCost> = by_scope.into_iter().map(|(cost, _)| cost).collect();
        costs.sort_by_key(|cost| cost.scope);
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
            provenance: match &self.profile.estimate {
                _ if stale => Provenance::Stale,
                Some(_) => Provenance::Estimated,
                None => Provenance::Measured,
            },
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::profile::{FileFacts, ModuleCost};
    use crate::source::{TextEdit, fingerprint};

    /// A profile of `text` where each of `lines` (line, function, milliseconds) has a cost.
    fn profile(text: &str, lines: &[(u32, &str, f64)]) -> Profile {
        let mut profile = Profile::default();
        profile.files.push(FileFacts { path: "a.py".into(), fingerprint: fingerprint(text) });
        profile.iteration.time_ns = 100e6;
        profile.iteration.phases.forward = 100e6;
        profile.memory.peak_bytes = 1_000;
        profile.memory.at_peak.activations = 1_000;
        let line = |&(line, scope, time): &(u32, &str, f64)| {
            let time = PhaseTimes { forward: time * 1e6, ..PhaseTimes::default() };
            let memory = MemoryByKind { activations: 10, ..MemoryByKind::default() };
            LineCost {
                line,
                scope: scope.into(),
                self_time: time,
                total_time: time,
                calls: 1.0,
                self_memory: memory,
                total_memory: memory,
                ..LineCost::default()
            }
        };
        profile.lines.push(lines.iter().map(line).collect());
        profile
    }

    fn shown(costs: &CostMap, index: &SourceIndex) -> String {
        let mut text = String::new();
        for cost in &costs.statements {
            let code = &index.text()[cost.span.clone()];
            let (time, memory) = (cost.total_time.total() / 1e6, cost.total_memory.total());
            let own = cost.self_time.total() / 1e6;
            text += &format!(
                "{}-{} {own}/{time} ms {memory} B {:?} {code:?}\n",
                cost.first_line, cost.last_line, cost.provenance
            );
        }
        for cost in &costs.scopes {
            let (name, time) = (index.scope_name(cost.scope), cost.total_time.total() / 1e6);
            text += &format!("{name}: {time} ms {:?}\n", cost.provenance);
        }
        text
    }

    #[track_caller]
    fn check(ran: &str, today: &str, lines: &[(u32, &str, f64)], expected: Expect) {
        let index = SourceIndex::new(today);
        let costs = CostMap::build(&profile(ran, lines), FileId(0), &index);
        expected.assert_eq(&shown(&costs, &index));
    }

    const CALL: &str = "def f(x):\n    y = g(\n        a(x),\n        b(x),\n    )\n    return y\n";

    #[test]
    fn lines_of_one_statement_are_added() {
        check(
            CALL,
            CALL,
            &[(2, "f", 1.0), (3, "f", 2.0), (4, "f", 4.0)],
            expect![[r#"
            2-5 7/7 ms 30 B Measured "y = g(\n        a(x),\n        b(x),\n    )"
            f: 7 ms Measured
        "#]],
        );
    }

    #[test]
    fn a_comprehension_is_within_its_line_already() {
        let text = "y = [\n    f(i)\n    for i in x\n]\n";
        let nested = "<module>.<locals>.<listcomp>";
        check(
            text,
            text,
            &[(1, "<module>", 9.0), (2, nested, 5.0), (3, nested, 3.0)],
            expect![[r#"
                1-4 17/9 ms 20 B Measured "y = [\n    f(i)\n    for i in x\n]"
            "#]],
        );
    }

    #[test]
    fn a_statement_that_calls_itself_is_no_longer_than_the_iteration() {
        check(
            "f(\n g(),\n)\n",
            "f(\n g(),\n)\n",
            &[(1, "f", 80.0), (2, "f", 70.0)],
            expect![[r#"
            1-3 150/100 ms 20 B Measured "f(\n g(),\n)"
        "#]],
        );
    }

    #[test]
    fn a_changed_argument_makes_the_statement_stale() {
        check(
            CALL,
            &CALL.replace("b(x)", "b(x, 1)"),
            &[(2, "f", 1.0), (6, "f", 2.0)],
            expect![[r#"
                2-5 1/1 ms 10 B Stale "y = g(\n        a(x),\n        b(x, 1),\n    )"
                6-6 2/2 ms 10 B Measured "return y"
                f: 3 ms Stale
            "#]],
        );
    }

    #[test]
    fn a_line_added_to_or_taken_from_a_statement_makes_it_stale() {
        let costs = [(2, "f", 1.0), (6, "f", 2.0)];
        let longer = CALL.replace("b(x),\n", "b(x),\n        c(x),\n");
        check(
            CALL,
            &longer,
            &costs,
            expect![[r#"
            2-6 1/1 ms 10 B Stale "y = g(\n        a(x),\n        b(x),\n        c(x),\n    )"
            7-7 2/2 ms 10 B Measured "return y"
            f: 3 ms Stale
        "#]],
        );
        check(
            CALL,
            &CALL.replace("        a(x),\n", ""),
            &costs,
            expect![[r#"
            2-4 1/1 ms 10 B Stale "y = g(\n        b(x),\n    )"
            5-5 2/2 ms 10 B Measured "return y"
            f: 3 ms Stale
        "#]],
        );
    }

    #[test]
    fn blanks_and_comments_change_nothing() {
        let today = CALL.replace("b(x),\n", "b(x),\n\n        # c\n").replace("def", "\n# d\ndef");
        check(
            CALL,
            &today,
            &[(2, "f", 1.0), (4, "f", 2.0)],
            expect![[r#"
            4-9 3/3 ms 20 B Measured "y = g(\n        a(x),\n        b(x),\n\n        # c\n    )"
            f: 3 ms Measured
        "#]],
        );
    }

    #[test]
    fn a_deleted_statement_has_no_cost() {
        check(
            "a()\nb()\nc()\n",
            "a()\nc()\n",
            &[(2, "", 1.0), (3, "", 2.0)],
            expect![[r#"
            2-2 2/2 ms 10 B Measured "c()"
        "#]],
        );
    }

    #[test]
    fn a_bracket_that_is_not_closed_yet_leaves_the_rest_alone() {
        let ran = "def f(x):\n    a(x)\n    b(x)\n    c(x)\n";
        let today = ran.replace("    b(x)\n", "    d(\n    b(x)\n");
        check(
            ran,
            &today,
            &[(2, "f", 1.0), (3, "f", 2.0), (4, "f", 4.0)],
            expect![[r#"
            2-2 1/1 ms 10 B Measured "a(x)"
            4-4 2/2 ms 10 B Measured "b(x)"
            5-5 4/4 ms 10 B Measured "c(x)"
            f: 7 ms Stale
        "#]],
        );
    }

    #[test]
    fn a_quote_that_is_not_closed_yet_leaves_the_rest_alone() {
        let ran = "def f(x):\n    a(x)\n    b(x)\n\ndef g():\n    \"\"\"Text.\"\"\"\n    c(x)\n";
        let today = ran.replace("    b(x)\n", "    \"\"\"\n    b(x)\n");
        check(
            ran,
            &today,
            &[(2, "f", 1.0), (3, "f", 2.0), (7, "f", 4.0)],
            expect![[r#"
            2-2 1/1 ms 10 B Measured "a(x)"
            4-4 2/2 ms 10 B Measured "b(x)"
            8-8 4/4 ms 10 B Measured "c(x)"
            f: 7 ms Stale
        "#]],
        );
    }

    #[test]
    fn several_statements_on_a_line_share_one_cost() {
        check(
            "a(); b()\n",
            "a(); b()\n",
            &[(1, "", 3.0)],
            expect![[r#"
            1-1 3/3 ms 10 B Measured "a()"
        "#]],
        );
    }

    #[test]
    fn modules_count_once_where_they_were_made() {
        let text = "net = Net()\nblock = Block()\n";
        let mut profile = profile(text, &[]);
        let module = |path: &str, parent: Option<u32>, lines: &[u32]| ModuleCost {
            path: path.into(),
            parent: parent.map(ModuleId),
            definition: lines.iter().map(|&line| (FileId(0), line)).collect(),
            total_time: PhaseTimes { forward: 1e6, ..PhaseTimes::default() },
            ..ModuleCost::default()
        };
        profile.modules = vec![
            module("", None, &[1]),
            module("a", Some(0), &[1, 1]),
            module("a.b", Some(1), &[2, 1]),
            module("c", Some(0), &[2]),
        ];
        let costs = CostMap::build(&profile, FileId(0), &SourceIndex::new(text));
        let made: Vec<_> = costs
            .definitions
            .iter()
            .map(|cost| (cost.first_line, cost.modules.as_slice()))
            .collect();
        assert_eq!(made, [(1, &[ModuleId(0)][..]), (2, &[ModuleId(2), ModuleId(3)])]);
    }

    #[test]
    fn the_loop_is_stale_when_its_body_changed() {
        let ran = "for x in y:\n    a(x)\nb()\n";
        let mut profile = profile(ran, &[(2, "", 1.0)]);
        profile.iteration.loop_line = Some((FileId(0), 1));
        let provenance = |today: &str| {
            let index = SourceIndex::new(today);
            CostMap::build(&profile, FileId(0), &index).training_loop.map(|found| found.provenance)
        };
        assert_eq!(provenance(ran), Some(Provenance::Measured));
        assert_eq!(provenance("for x in y:\n    a(x)\n"), Some(Provenance::Measured));
        assert_eq!(provenance("for x in y:\n    c(x)\nb()\n"), Some(Provenance::Stale));
        assert_eq!(provenance("b()\n"), None);
    }

    proptest! {
        #[test]
        fn nothing_from_outside_panics(
            ran in "[af(:)x\\n\\r é🙂\"]{0,60}",
            today in "[af(:)x\\n\\r é🙂\"]{0,60}",
            edit in ("[a(\\n]{0,4}", 0usize..80, 0usize..10),
            lines in proptest::collection::vec((any::<u32>(), any::<f64>()), 0..6),
            modules in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..9), 0..6),
            near in proptest::collection::vec((0u32..12, any::<f64>()), 0..6),
            file in 0u32..3,
        ) {
            let lines: Vec<(u32, &str, f64)> =
                lines.iter().chain(&near).map(|(line, time)| (*line, "f", *time)).collect();
            let mut profile = profile(&ran, &lines);
            profile.iteration.loop_line = near.first().map(|(line, _)| (FileId(0), *line));
            profile.memory.peak_bytes = u64::MAX;
            for (parent, at, line) in modules {
                profile.modules.push(ModuleCost {
                    parent: Some(ModuleId(parent % 7)),
                    definition: vec![(FileId(0), line), (FileId(at), at)],
                    memory: MemoryByKind { weights: u64::MAX, activations: u64::MAX, ..MemoryByKind::default() },
                    ..ModuleCost::default()
                });
            }
            let mut index = SourceIndex::new(today);
            let (text, at, cut) = edit;
            index.edit(&[TextEdit { range: at..at + cut, text }]);
            let costs = CostMap::build(&profile, FileId(file), &index);
            let text = index.text();
            for span in costs.statements.iter().map(|cost| &cost.span)
                .chain(costs.definitions.iter().map(|cost| &cost.span))
                .chain(costs.scopes.iter().flat_map(|cost| [&cost.span, &cost.name]))
                .chain(costs.training_loop.iter().flat_map(|found| [&found.span, &found.header]))
            {
                prop_assert!(text.get(span.clone()).is_some());
            }
            let everything = crate::present::everything(&profile, &costs, &index);
            prop_assert!(everything.iter().all(|offset| text.is_char_boundary(*offset)));
        }
    }
}
