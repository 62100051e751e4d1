//! Converts the protocol's types to the server's.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use tower_lsp::ls_types::{
    DiagnosticClientCapabilities, DidChangeNotebookDocumentParams, DidOpenNotebookDocumentParams,
    InitializeParams, MarkupKind, NotebookCell, NotebookCellKind, TextDocumentContentChangeEvent,
    TextDocumentItem, Uri, WorkspaceFolder,
};

use super::position::{ClientRange, Encoding};
use crate::documents::{Change, DocumentId};
use crate::event::Notification;
use crate::open_notebooks::{Cell, OpenedCell};
use crate::state::Client;

/// The id of the document that a URI names.
pub(crate) fn document_id(uri: &Uri) -> DocumentId {
    match file_path(uri) {
        Some(path) => DocumentId::File(path),
        None => DocumentId::Other(uri.as_str().to_owned()),
    }
}

/// The path of a `file:` URI, absolute and without `.` and `..`.
pub(crate) fn file_path(uri: &Uri) -> Option<PathBuf> {
    let is_file = uri.scheme().as_str().eq_ignore_ascii_case("file");
    // The URI of a notebook cell may be the notebook's path with the cell in its fragment.
    let is_whole = uri.fragment().is_none();
    let path = uri.to_file_path().filter(|path| is_file && is_whole && path.is_absolute())?;
    path.to_str().filter(|path| !path.contains('\0'))?;
    Some(normal(&path))
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// Converts the opening of a notebook. Notebooks that are no files are ignored.
pub(crate) fn notebook_opened(params: DidOpenNotebookDocumentParams) -> Vec<Notification> {
    let notebook = params.notebook_document;
    let Some(path) = file_path(&notebook.uri) else { return Vec::new() };
    let uri = notebook.uri.as_str().to_owned();
    let texts = opened_cells(params.cell_text_documents);
    vec![Notification::NotebookOpened(uri, path, cells(&notebook.cells), texts)]
}

/// Converts a change of a notebook: first its cells, then their texts. A cell that is closed and
/// opened at once, because it moved, stays open.
pub(crate) fn notebook_changed(params: DidChangeNotebookDocumentParams) -> Vec<Notification> {
    let uri = params.notebook_document.uri.as_str().to_owned();
    let Some(change) = params.change.cells else { return Vec::new() };
    let mut notifications = Vec::new();
    if let Some(structure) = change.structure {
        let array = structure.array;
        let closed = structure.did_close.unwrap_or_default().into_iter();
        notifications.extend(closed.map(|cell| Notification::Closed(document_id(&cell.uri))));
        notifications.push(Notification::CellsChanged(
            uri,
            array.start as usize,
            array.delete_count as usize,
            cells(array.cells.as_deref().unwrap_or_default()),
            opened_cells(structure.did_open.unwrap_or_default()),
        ));
    }
    notifications.extend(change.text_content.unwrap_or_default().into_iter().map(|content| {
        let document = content.document;
        Notification::Changed(
            document_id(&document.uri),
            document.version,
            changes(content.changes),
        )
    }));
    notifications
}

fn cells(cells: &[NotebookCell]) -> Vec<Cell> {
    let cell = |cell: &NotebookCell| Cell {
        document: document_id(&cell.document),
        is_code: cell.kind == NotebookCellKind::CODE,
    };
    cells.iter().map(cell).collect()
}

fn opened_cells(documents: Vec<TextDocumentItem>) -> Vec<OpenedCell> {
    let is_python =
        |document: &TextDocumentItem| document.language_id.eq_ignore_ascii_case("python");
    let opened = documents.into_iter().filter(is_python).map(|document| OpenedCell {
        id: document_id(&document.uri),
        uri: document.uri.as_str().to_owned(),
        text: document.text,
        version: document.version,
    });
    opened.collect()
}

/// Whether a document is Python text that the server handles. Notebook cells are not: they belong to
/// a notebook, which the client opens as such.
pub(crate) fn is_python(uri: &Uri, language: &str) -> bool {
    let is_cell =
        uri.scheme().as_str().contains("notebook") || uri.path().as_str().ends_with(".ipynb");
    language.eq_ignore_ascii_case("python") && !is_cell
}

/// Converts the changes of a text.
pub(crate) fn changes(events: Vec<TextDocumentContentChangeEvent>) -> Vec<Change<ClientRange>> {
    events
        .into_iter()
        .map(|event| match event.range {
            Some(range) => Change::Part(range, event.text),
            None => Change::Whole(event.text),
        })
        .collect()
}

/// The workspace folders that are folders of this machine.
pub(crate) fn folders(folders: &[WorkspaceFolder]) -> Vec<PathBuf> {
    folders.iter().filter_map(|folder| file_path(&folder.uri)).collect()
}

/// The path in a command's first argument: a URI, a path, or an object with one of them.
pub(crate) fn path_argument(arguments: &[Value]) -> Option<PathBuf> {
    let first = arguments.first()?;
    let text = first.get("uri").unwrap_or(first).as_str()?;
    if Path::new(text).is_absolute() && !text.contains('\0') {
        return Some(normal(Path::new(text)));
    }
    text.parse::<Uri>().ok().as_ref().and_then(file_path)
}

/// The client's name and capabilities.
pub(crate) fn client(params: InitializeParams) -> Client {
    let capabilities = params.capabilities;
    let workspace = capabilities.workspace.unwrap_or_default();
    let window = capabilities.window.unwrap_or_default();
    let text = capabilities.text_document.unwrap_or_default();
    let general = capabilities.general.unwrap_or_default();
    let offered = general.position_encodings.unwrap_or_default();
    let hover_formats = text.hover.and_then(|hover| hover.content_format).unwrap_or_default();
    let pulls = text.diagnostic.as_ref();
    let pushed = text.publish_diagnostics;
    let experimental = capabilities.experimental.unwrap_or_default();
    let own = experimental.get("ridgeline");
    let announces = |what: &str| own.and_then(|own| own.get(what)) == Some(&Value::Bool(true));
    let options = params.initialization_options.unwrap_or_default();
    #[expect(deprecated, reason = "clients of before 3.6 send nothing else")]
    let older = (params.root_uri, params.root_path);
    let mut roots = folders(&params.workspace_folders.unwrap_or_default());
    if roots.is_empty() {
        let path = older.1.map(PathBuf::from).filter(|path| path.is_absolute());
        roots.extend(older.0.as_ref().and_then(file_path).or(path));
    }
    Client {
        name: params.client_info.map(|info| info.name).unwrap_or_default(),
        roots,
        vouched: options.get("trusted") == Some(&Value::Bool(true)),
        options,
        encoding: Encoding::negotiate(&offered),
        shows_lenses: text.code_lens.is_some() || workspace.code_lens.is_some(),
        takes_diagnostics: pushed.is_some(),
        refreshes_hints: workspace
            .inlay_hint
            .and_then(|hints| hints.refresh_support)
            .unwrap_or_default(),
        refreshes_lenses: workspace
            .code_lens
            .and_then(|lenses| lenses.refresh_support)
            .unwrap_or_default(),
        refreshes_diagnostics: workspace
            .diagnostics
            .and_then(|diagnostics| diagnostics.refresh_support)
            .unwrap_or_default(),
        pulls_diagnostics: pushed.is_none() && pulls.is_some(),
        related_information: match &pushed {
            Some(pushed) => pushed.related_information.unwrap_or_default(),
            None => pulls.and_then(related_information).unwrap_or_default(),
        },
        takes_markdown: hover_formats.contains(&MarkupKind::Markdown),
        takes_plain_text: hover_formats.contains(&MarkupKind::PlainText),
        configuration: workspace.configuration.unwrap_or_default(),
        shows_progress: window.work_done_progress.unwrap_or_default(),
        shows_documents: window.show_document.is_some_and(|show| show.support),
        applies_edits: workspace.apply_edit.unwrap_or_default(),
        versioned_edits: workspace
            .workspace_edit
            .and_then(|edit| edit.document_changes)
            .unwrap_or_default(),
        shows_panel: announces("panel"),
        hovers_diagnostics: announces("diagnosticsInHover"),
        runs_links: announces("hoverLinks"),
        highlights: announces("highlight"),
        knows_background: announces("background"),
    }
}

fn related_information(pulls: &DiagnosticClientCapabilities) -> Option<bool> {
    pulls.related_information
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uri: &str, expected: Option<&str>) {
        let uri: Uri = uri.parse().expect("a URI");
        assert_eq!(file_path(&uri), expected.map(PathBuf::from));
    }

    #[test]
    fn paths_of_uris() {
        check("file:///w/a%20b/%C3%A9.py", Some("/w/a b/é.py"));
        check("FILE:///w/./x/../a.py", Some("/w/a.py"));
        check("file:///../../etc", Some("/etc"));
        check("untitled:Untitled-1", None);
        check("vscode-notebook-cell:/w/a.ipynb#W0s", None);
        check("file:///w/a.ipynb#cell", None);
        check("file:///w/%00.py", None);
        check("file:relative", None);
    }

    #[test]
    fn notebooks_are_ignored() {
        for (uri, language, expected) in [
            ("file:///w/a.py", "python", true),
            ("file:///w/a.py", "Python", true),
            ("untitled:Untitled-1", "python", true),
            ("file:///w/a.ipynb", "python", false),
            ("vscode-notebook-cell:/w/a.ipynb#W0s", "python", false),
            ("file:///w/a.txt", "plaintext", false),
        ] {
            assert_eq!(is_python(&uri.parse().expect("a URI"), language), expected, "{uri}");
        }
    }
}
