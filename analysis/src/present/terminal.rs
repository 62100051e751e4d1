//! What a terminal shows: a file's source with its costs in the margin, and a summary.

use crate::profile::Profile;
use crate::source::{CostMap, SourceIndex};

/// How to write for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With ANSI colours.
    pub color: bool,
    /// Columns.
    pub width: usize,
}

/// A file's source with its costs in the margin.
pub fn annotated_source(
    _profile: &Profile,
    _costs: &CostMap,
    _index: &SourceIndex,
    _style: Style,
) -> String {
    String::new()
}

/// The headline, phases, memory, the costliest lines and modules, and notes.
pub fn summary(_profile: &Profile, _style: Style) -> String {
    String::new()
}
