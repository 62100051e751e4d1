//! `textDocument/codeLens`: memory of lines, totals of functions, the headline at the loop, and
//! "profile".

use ridgeline_analysis::present::lenses::lenses;
use tower_lsp::ls_types::CodeLens;

use crate::lsp::to_proto;
use crate::view::View;

/// The lenses of a document. They are complete, so there is nothing to resolve.
pub(super) fn code_lenses(view: &View) -> Option<Vec<CodeLens>> {
    let options = view.settings.lenses.as_ref()?;
    let lenses = lenses(view.costs(), &view.document.index, || view.training(), options);
    Some(lenses.iter().map(|lens| to_proto::code_lens(view, lens)).collect())
}
