//! [`CostMap`]: the costs of one file of a profile, mapped to spans of its current text.

mod builder;
mod definitions;
mod expressions;
mod scopes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use builder::Builder;
pub use expressions::PlacedExpression;
pub(crate) use expressions::expression_span;

use ridgeline_profile::{
    DeviceTime, FileId, LineCost, MemoryByKind, ModuleId, PhaseTimes, Profile, Provenance,
};
use ridgeline_python::syntax::anchor::LineMap;
use ridgeline_python::syntax::index::SourceIndex;

/// The costs of one file, mapped to spans of its current text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostMap {
    /// The file in the profile.
    pub file: Option<FileId>,
    /// Statements with a cost, in source order; at most one for each line.
    pub statements: Vec<StatementCost>,
    /// Statements that create modules, in source order, with the cost of those modules.
    pub definitions: Vec<DefinitionCost>,
    /// Functions and classes with a cost, in source order.
    pub scopes: Vec<ScopeCost>,
    /// The loop whose iterations were measured, if it is in this file.
    pub training_loop: Option<LoopCost>,
    /// Indices into the profile's lines of this file, grouped by statement. They share one list
    /// because the map of a long file is rebuilt on every keystroke, and allocating thousands of
    /// short lists would dominate that.
    lines: Vec<u32>,
    /// From the lines of the text that ran to those of the current text.
    map: LineMap,
}

/// The cost of a statement in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementCost {
    /// Byte range of the statement, or of its header if it is a compound statement.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the span, counted from 1.
    pub last_line: u32,
    /// Index into the statements of the [`SourceIndex`]; `None` if the line could not be parsed.
    pub statement: Option<usize>,
    /// Whether it is a `for` loop.
    pub is_for: bool,
    /// The recorded lines: a range of [`CostMap::lines`].
    lines: Range<usize>,
    /// Self time of these lines, in nanoseconds.
    pub self_time: PhaseTimes,
    /// Time of these lines and everything they call, in nanoseconds.
    pub total_time: PhaseTimes,
    /// Executions per iteration.
    pub calls: f64,
    /// GPU time, if the profile is from a GPU.
    pub device_time: Option<DeviceTime>,
    /// Memory alive at the peak and allocated here.
    pub self_memory: MemoryByKind,
    /// Memory alive at the peak and allocated here or in calls from here.
    pub total_memory: MemoryByKind,
    /// The origin of the numbers.
    pub provenance: Provenance,
}

/// The cost of the modules that a statement creates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefinitionCost {
    /// Byte range of the statement, or of its header if it is a compound statement.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the span, counted from 1.
    pub last_line: u32,
    /// The modules; none is a submodule of another.
    pub modules: Vec<ModuleId>,
    /// Time of all of them, including their children.
    pub total_time: PhaseTimes,
    /// Memory alive at the peak that they own or allocated.
    pub memory: MemoryByKind,
    /// The origin of the numbers.
    pub provenance: Provenance,
}

/// The cost of a function or class in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeCost {
    /// Index into the scopes of the [`SourceIndex`].
    pub scope: usize,
    /// Byte range of the name.
    pub name: Range<usize>,
    /// Byte range of the whole definition.
    pub span: Range<usize>,
    /// The line of the name, counted from 1.
    pub line: u32,
    /// Whether it is a class rather than a function.
    pub is_class: bool,
    /// The modules that are instances of this class; none is a submodule of another.
    pub modules: Vec<ModuleId>,
    /// Time including everything it calls.
    pub total_time: PhaseTimes,
    /// Memory alive at the peak that it, or what it calls, allocated.
    pub total_memory: MemoryByKind,
    /// The origin of the numbers.
    pub provenance: Provenance,
}

/// The measured loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopCost {
    /// Byte range of the loop's header.
    pub header: Range<usize>,
    /// Byte range of the loop, including its body.
    pub span: Range<usize>,
    /// First line, counted from 1.
    pub first_line: u32,
    /// Last line of the header, counted from 1.
    pub last_line: u32,
    /// The origin of the numbers; stale if anything in the loop changed.
    pub provenance: Provenance,
}

impl CostMap {
    /// Maps the costs of one file of a profile to its current text.
    pub fn build(profile: &Profile, file: FileId, index: &SourceIndex) -> CostMap {
        let lines = profile.lines.get(file.0 as usize).map_or(&[][..], Vec::as_slice);
        let fingerprint =
            profile.files.get(file.0 as usize).map_or(&[][..], |file| &file.fingerprint);
        let map = LineMap::new(fingerprint, index.lines().checksums());
        let builder = Builder { profile, file, index, lines, map };
        builder.build()
    }

    /// Returns the recorded lines of a statement.
    pub fn recorded_lines<'a>(
        &'a self,
        profile: &'a Profile,
        cost: &StatementCost,
    ) -> impl Iterator<Item = &'a LineCost> {
        let lines = self.file.and_then(|file| profile.lines.get(file.0 as usize));
        let at = self.lines.get(cost.lines.clone()).unwrap_or_default();
        at.iter().filter_map(move |&at| lines?.get(at as usize))
    }

    /// Returns the cost of the statement on a line, counted from 1.
    pub fn statement_on_line(&self, line: u32) -> Option<&StatementCost> {
        let at = self.statements.partition_point(|cost| cost.last_line < line);
        self.statements.get(at).filter(|cost| cost.first_line <= line)
    }

    /// Returns the cost of the modules created on a line, counted from 1.
    pub fn definition_on_line(&self, line: u32) -> Option<&DefinitionCost> {
        let at = self.definitions.partition_point(|cost| cost.last_line < line);
        self.definitions.get(at).filter(|cost| cost.first_line <= line)
    }
}
