//! `textDocument/inlayHint`: the time of statements at the end of their lines.

use ridgeline_analysis::present::hints::hints;
use tower_lsp::ls_types::{InlayHint, Range};

use crate::lsp::{position, to_proto};
use crate::view::View;

/// The hints within a range.
pub(super) fn inlay_hints(view: &View, range: Range) -> Option<Vec<InlayHint>> {
    let options = view.settings.hints.as_ref()?;
    let index = &view.document.index;
    let span = position::to_span(index.text(), index.lines(), view.encoding, range);
    let (profile, costs) = view.costs()?;
    let hints = hints(profile, costs, index, span, options);
    Some(hints.iter().map(|hint| to_proto::inlay_hint(view, hint)).collect())
}
