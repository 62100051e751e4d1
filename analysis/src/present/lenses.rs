//! Code lenses: a line of text above a line of code.

use crate::profile::{Profile, Provenance};
use crate::source::{CostMap, SourceIndex, TrainingScript};

/// The command of the lens that starts a run.
pub const PROFILE_COMMAND: &str = "ridgeline.profile";
/// The command of the lens that opens the panel.
pub const OPEN_PANEL_COMMAND: &str = "ridgeline.openPanel";

/// A text above a line, and what a click on it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lens {
    /// The line that it stands above, counted from 1.
    pub line: u32,
    /// Bytes of the line's code.
    pub span: std::ops::Range<usize>,
    /// `activations 86 MB · weights 9 MB`.
    pub title: String,
    /// The command of a click; nothing where it only tells.
    pub command: Option<&'static str>,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct LensOptions {
    /// Lines that hold less than this share of the peak, 0 to 1, have no lens.
    pub min_memory_share: f64,
    /// Functions and classes under this share of the iteration, 0 to 1, have no lens.
    pub min_scope_share: f64,
    /// Memory of lines.
    pub memory: bool,
    /// Totals of functions and classes.
    pub scopes: bool,
    /// Throughput and memory at the training loop.
    pub headline: bool,
    /// "profile".
    pub profile: bool,
    /// "open panel"; only where there is a panel.
    pub panel: bool,
    /// One lens for a line at the most, for editors that show only one: texts are joined.
    pub one_a_line: bool,
}

impl Default for LensOptions {
    fn default() -> LensOptions {
        LensOptions {
            min_memory_share: 0.02,
            min_scope_share: 0.01,
            memory: true,
            scopes: true,
            headline: true,
            profile: true,
            panel: false,
            one_a_line: false,
        }
    }
}

/// The lenses of one file, by place. Without a profile, only the "profile" lens, where the text
/// trains a model.
pub fn lenses(
    _profile: Option<(&Profile, &CostMap)>,
    _index: &SourceIndex,
    _training: &TrainingScript,
    _options: &LensOptions,
) -> Vec<Lens> {
    Vec::new()
}
