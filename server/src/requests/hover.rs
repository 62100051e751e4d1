//! `textDocument/hover`: details of a line.

use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::diagnose::severity::Severity;
use ridgeline_analysis::present::hover::{HoverContext, hover as present, of_findings};
use ridgeline_analysis::profile::Profile;
use tower_lsp::ls_types::{Hover, Position};

use crate::findings::PlacedFinding;
use crate::lsp::{position, to_proto};
use crate::panel::answer::compare_devices;
use crate::view::View;

/// The hover at a position.
pub(super) fn hover(view: &View, at: Position) -> Option<Hover> {
    if !view.settings.hover {
        return None;
    }
    let index = &view.document.index;
    let offset = position::to_offset(index.text(), index.lines(), view.encoding, at);
    let line = index.lines().line_of(offset);
    let found = view.findings();
    // A finding that the hover already shows as a diagnostic is not repeated.
    let is_shown = |one: &PlacedFinding<'_>| {
        let is_marked = one.line == line && index.code_on_line(line).contains(&offset);
        view.client.hovers_diagnostics && one.severity > Severity::Hint && is_marked
    };
    let here = found.iter().filter(|one| (one.statement.0..=one.statement.1).contains(&line));
    let here = here.filter(|one| !is_shown(one));
    let findings: Vec<(&Finding, Option<&Profile>)> =
        here.map(|one| (one.finding, one.profile())).collect();
    let alone = || of_findings(&findings, index, offset);
    let hover = match view.costs() {
        Some((profile, costs)) => {
            let measured = view.measured.as_ref();
            let comparison = measured
                .and_then(|measured| compare_devices(&measured.profiled, &view.settings.prices));
            let what_ifs = view.what_ifs.as_deref();
            let links = to_proto::edit_links(view);
            let files = to_proto::file_links(view);
            let comparison = comparison.as_deref();
            let context = HoverContext {
                device_comparison: comparison,
                what_ifs,
                findings: &findings,
                links: &links,
                files: &files,
            };
            present(profile, context, costs, index, offset).or_else(alone)
        }
        None => alone(),
    };
    hover.map(|hover| to_proto::hover(view, hover))
}
