//! [`CostMap`]: the costs of one file of a profile, on spans of today's text.

mod builder;
mod definitions;
mod scopes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use builder::Builder;

use ridgeline_profile::{
    DeviceTime, FileId, LineCost, MemoryByKind, ModuleId, PhaseTimes, Profile, Provenance,
};
use ridgeline_python::syntax::anchor::LineMap;
use ridgeline_python::syntax::index::SourceIndex;

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
    /// The modules that are of this class; none is part of another one of them.
    pub modules: Vec<ModuleId>,
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
