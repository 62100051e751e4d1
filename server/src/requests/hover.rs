//! `textDocument/hover`: everything that is known of a line.

use ridgeline_analysis::present::hover::{Beside, hover as present};
use tower_lsp::ls_types::{Hover, Position};

use crate::lsp::{position, to_proto};
use crate::panel::answer::priced;
use crate::view::View;

/// What is known at a position.
pub fn hover(view: &View, at: Position) -> Option<Hover> {
    if !view.settings.hover {
        return None;
    }
    let index = &view.document.index;
    let offset = position::to_offset(index.text(), index.lines(), view.encoding, at);
    let (profile, costs) = view.costs()?;
    let elsewhere = priced(profile, &view.settings.prices);
    let beside = Beside { elsewhere: elsewhere.as_deref(), what_ifs: view.what_ifs.as_deref() };
    present(profile, beside, costs, index, offset).map(|hover| to_proto::hover(view, hover))
}
