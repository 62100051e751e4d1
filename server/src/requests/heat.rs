//! `ridgeline/heat`: the statements that take most of an iteration's time.

use ridgeline_analysis::present::heat::heat as present;

use crate::lsp::ext::HeatStatement;
use crate::lsp::position::to_range;
use crate::view::View;

/// The hottest statements of a document. Empty if nothing was measured.
pub(super) fn heat(view: &View) -> Option<Vec<HeatStatement>> {
    let index = &view.document.index;
    let found = view.costs().map(|(profile, costs)| present(profile, costs)).unwrap_or_default();
    let statements = found.into_iter().map(|found| HeatStatement {
        range: to_range(index.text(), index.lines(), view.encoding, found.span),
        share: found.share,
        provenance: found.provenance.into(),
    });
    Some(statements.collect())
}
