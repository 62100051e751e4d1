//! The hover: everything that is known of a statement, function, class or loop.

use std::ops::Range;

use crate::profile::Profile;
use crate::source::{CostMap, SourceIndex};

/// A text about a span, twice: editors that show no markdown get the plain one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hover {
    /// Bytes that it is about.
    pub span: Range<usize>,
    /// As markdown.
    pub markdown: String,
    /// The same without markup.
    pub plain: String,
}

/// What is known at `offset`. Nothing where nothing was measured there.
pub fn hover(
    _profile: &Profile,
    _costs: &CostMap,
    _index: &SourceIndex,
    _offset: usize,
) -> Option<Hover> {
    None
}
