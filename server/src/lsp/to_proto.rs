//! Converts the server's types to the protocol's.

use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ridgeline_analysis::optimize::rewrite::EditKind;
use ridgeline_analysis::present::hints::Hint;
use ridgeline_analysis::present::hover::Hover as HoverView;
use ridgeline_analysis::present::lenses::Lens;
use ridgeline_analysis::profile::Provenance;
use serde_json::{Value, json};
use tower_lsp::jsonrpc;
use tower_lsp::ls_types::{
    CodeLens, Command, Hover, HoverContents, InlayHint, InlayHintLabel, MarkedString,
    MarkupContent, MarkupKind, Uri,
};

use super::ext::command;
use super::position::{to_position, to_range};
use crate::notebook;
use crate::pool::RequestError;
use crate::view::View;

/// The URI of a file. Returns `None` if its path is not absolute.
pub(crate) fn uri(path: &Path) -> Option<Uri> {
    // The editor names a cell, and it is open.
    let is_cell = notebook::cell_of(path).is_some();
    Uri::from_file_path(path).filter(|_| !is_cell)
}

/// The URI of a file as text, or an empty string if there is none.
pub(crate) fn uri_text(path: &Path) -> String {
    uri(path).map(|uri| uri.as_str().to_owned()).unwrap_or_default()
}

/// Converts a hint. It is padded and has no kind, because it is neither a type nor a parameter.
pub(crate) fn inlay_hint(view: &View, hint: &Hint) -> InlayHint {
    let index = &view.document.index;
    InlayHint {
        position: to_position(index.text(), index.lines(), view.encoding, hint.offset),
        label: InlayHintLabel::String(hint.label.clone()),
        kind: None,
        text_edits: None,
        tooltip: provenance_note(hint.provenance).map(|note| note.to_owned().into()),
        padding_left: Some(true),
        padding_right: None,
        data: None,
    }
}

fn provenance_note(provenance: Provenance) -> Option<&'static str> {
    match provenance {
        Provenance::Measured => None,
        Provenance::Estimated => {
            Some("Estimated, or a measured total split by an estimated share.")
        }
        Provenance::Stale => Some("Measured before this statement changed."),
    }
}

/// Converts a lens. A lens without an action has a command without a name, which clients show as
/// plain text.
pub(crate) fn code_lens(view: &View, lens: &Lens) -> CodeLens {
    let index = &view.document.index;
    let range = to_range(index.text(), index.lines(), view.encoding, lens.span.clone());
    let command = match lens.command {
        Some(command) => Command::new(
            lens.title.clone(),
            command.to_owned(),
            Some(vec![json!({"uri": view.document.uri})]),
        ),
        None => Command::new(lens.title.clone(), String::new(), None),
    };
    CodeLens { range, command: Some(command), data: None }
}

/// Command links for the edits in the program of this file. Empty if the client does not run
/// commands from hovers.
pub(crate) fn edit_links(view: &View) -> Vec<(EditKind, String)> {
    let edits = EditKind::ALL.into_iter().filter(|_| view.client.runs_links);
    let link = |edit: EditKind| {
        let arguments = json!([{"name": edit.name(), "uri": view.document.uri}]).to_string();
        let arguments = utf8_percent_encode(&arguments, NON_ALPHANUMERIC);
        (edit, format!("command:{}?{arguments}", command::APPLY_WHAT_IF))
    };
    edits.map(link).collect()
}

/// The URIs of the measured files. Empty if the client does not follow links in hovers.
pub(crate) fn file_links(view: &View) -> Vec<Option<String>> {
    let measured = view.measured.as_ref().filter(|_| view.client.runs_links);
    let files = measured.map_or(&[][..], |measured| &measured.profiled.files);
    // Parentheses would end a link in Markdown.
    let link = |file: &PathBuf| Some(uri(file)?.as_str().replace('(', "%28").replace(')', "%29"));
    files.iter().map(|file| link(file.as_ref()?)).collect()
}

/// Converts a hover to the client's format. A client that announces no formats is an old one that
/// supports plain strings.
pub(crate) fn hover(view: &View, hover: HoverView) -> Hover {
    let index = &view.document.index;
    let range = to_range(index.text(), index.lines(), view.encoding, hover.span.clone());
    let contents = if view.client.takes_markdown {
        HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value: hover.markdown })
    } else if view.client.takes_plain_text {
        HoverContents::Markup(MarkupContent { kind: MarkupKind::PlainText, value: hover.plain })
    } else {
        HoverContents::Scalar(MarkedString::String(hover.plain))
    };
    Hover { contents, range: Some(range) }
}

/// Converts an error.
pub(crate) fn error(error: RequestError) -> jsonrpc::Error {
    let code = match &error {
        RequestError::ContentModified => jsonrpc::ErrorCode::ContentModified,
        RequestError::Invalid(_) => jsonrpc::ErrorCode::InvalidParams,
        RequestError::Internal(_) => jsonrpc::ErrorCode::InternalError,
    };
    jsonrpc::Error { code, message: error.to_string().into(), data: None::<Value> }
}
