//! Notebooks: each code cell is a document with the costs of its lines.

use std::sync::Arc;

use ridgeline_analysis::profile::FileFacts;
use ridgeline_analysis::python::fingerprint;
use serde_json::{Value, json};

use super::fake::{SCRIPT, Session, quiet};
use crate::profiler::ProfileOutcome;

const IMPORTS: &str = "import torch\nimport math\n";

/// The URI of a cell, as VS Code writes it.
fn cell(session: &Session, name: &str) -> String {
    session.uri("train.ipynb").replace("file:", "vscode-notebook-cell:") + "#" + name
}

fn cell_entry(uri: &str, is_code: bool) -> Value {
    json!({"kind": if is_code { 2 } else { 1 }, "document": uri})
}

fn text_document(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "languageId": "python", "version": 1, "text": text})
}

async fn change(session: &mut Session, cells: Value) {
    let notebook = json!({"uri": session.uri("train.ipynb"), "version": 2});
    let params = json!({"notebookDocument": notebook, "change": {"cells": cells}});
    session.client.notify("notebookDocument/didChange", params).await;
}

/// The hints of a cell as `line: label`.
async fn hints(session: &mut Session, cell: &str) -> Vec<String> {
    let end = json!({"line": 1000, "character": 0});
    let range = json!({"start": {"line": 0, "character": 0}, "end": end});
    let params = json!({"textDocument": {"uri": cell}, "range": range});
    let hints = session.client.request("textDocument/inlayHint", params).await.expect("hints");
    let hints = hints.as_array().cloned().unwrap_or_default();
    let shown = |hint: &Value| {
        let label = hint["label"].as_str().unwrap_or_default();
        format!("{}: {label}", hint["position"]["line"])
    };
    hints.iter().map(shown).collect()
}

/// Opens a notebook of a text, an import and the script, and runs it by saving it.
async fn profiled() -> (Session, String, String) {
    let mut options = quiet();
    options["live.enable"] = true.into();
    options["live.delayMilliseconds"] = 20.into();
    let mut session = Session::start();
    let editing = json!({"workspace": {"workspaceEdit": {"documentChanges": true}}});
    session.initialize_with(editing, options).await;
    std::fs::write(session.root.join("train.ipynb"), "{}").expect("a file");
    let [title, imports, script] = ["W0", "W1", "W2"].map(|name| cell(&session, name));
    let cells = [(&title, false), (&imports, true), (&script, true)];
    let notebook = json!({
        "uri": session.uri("train.ipynb"), "notebookType": "jupyter-notebook", "version": 1,
        "cells": cells.map(|(uri, is_code)| cell_entry(uri, is_code)),
    });
    let mut texts = vec![text_document(&imports, IMPORTS), text_document(&script, SCRIPT)];
    texts.push(json!({"uri": title, "languageId": "markdown", "version": 1, "text": "# Title"}));
    let opened = json!({"notebookDocument": notebook, "cellTextDocuments": texts});
    session.client.notify("notebookDocument/didOpen", opened).await;
    let saved = json!({"notebookDocument": {"uri": session.uri("train.ipynb")}});
    session.client.notify("notebookDocument/didSave", saved).await;

    let run = session.next_run().await;
    assert_eq!(run.request.changed, Some(session.root.join("train.ipynb")));
    let ProfileOutcome::Measured(mut measured) = session.measured() else { panic!("measured") };
    let profile = Arc::make_mut(&mut measured.profile);
    let facts = |number: usize, text: &str| FileFacts {
        path: format!("train.ipynb#{number}"),
        fingerprint: fingerprint(text),
    };
    profile.files = vec![facts(2, SCRIPT), facts(1, IMPORTS)];
    profile.lines.push(Vec::new());
    measured.files = profile.files.iter().map(|file| Some(session.root.join(&file.path))).collect();
    run.end.send(ProfileOutcome::Measured(measured)).expect("waiting");
    while session.client.status("idle").await["headline"].is_null() {}
    (session, imports, script)
}

#[tokio::test]
async fn cells_have_hints_and_hovers() {
    let (mut session, imports, script) = profiled().await;
    assert_eq!(hints(&mut session, &script).await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    assert_eq!(hints(&mut session, &imports).await, Vec::<String>::new());
    let place = json!({"textDocument": {"uri": script}, "position": {"line": 3, "character": 6}});
    let hover = session.client.request("textDocument/hover", place).await.expect("a hover");
    assert!(hover["contents"].to_string().contains("60 ms"), "{hover}");
    session.client.goodbye().await;
}

#[tokio::test]
async fn costs_follow_cells_that_move_and_change() {
    let (mut session, imports, script) = profiled().await;
    // A new code cell at the top, and the imports move to the end.
    let added = cell(&session, "W9");
    let structure = json!({
        "array": {"start": 0, "deleteCount": 2, "cells": [cell_entry(&added, true)]},
        "didOpen": [text_document(&added, "x = 1\n")],
    });
    change(&mut session, json!({"structure": structure})).await;
    let moved =
        json!({"array": {"start": 2, "deleteCount": 0, "cells": [cell_entry(&imports, true)]}});
    change(&mut session, json!({"structure": moved})).await;
    assert_eq!(hints(&mut session, &script).await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    assert_eq!(hints(&mut session, &added).await, Vec::<String>::new());

    let start = json!({"line": 0, "character": 0});
    let edit = json!([{"range": {"start": start, "end": start}, "text": "# a comment\n"}]);
    let text = json!([{"document": {"uri": script, "version": 2}, "changes": edit}]);
    change(&mut session, json!({"textContent": text})).await;
    assert_eq!(hints(&mut session, &script).await, ["3: 40 ms · 40%", "4: 60 ms · 60%"]);

    // A cell that is closed and opened at once is open.
    let reopened = json!({
        "array": {"start": 1, "deleteCount": 1, "cells": [cell_entry(&script, true)]},
        "didClose": [{"uri": script}], "didOpen": [text_document(&script, SCRIPT)],
    });
    change(&mut session, json!({"structure": reopened})).await;
    assert_eq!(hints(&mut session, &script).await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);

    // A deleted cell has nothing any more, even if the client does not close it.
    let deleted = json!({"array": {"start": 1, "deleteCount": 1}});
    change(&mut session, json!({"structure": deleted})).await;
    assert_eq!(hints(&mut session, &script).await, Vec::<String>::new());

    // Back again, and deleted and closed.
    let back =
        json!({"array": {"start": 1, "deleteCount": 0, "cells": [cell_entry(&script, true)]}});
    change(&mut session, json!({"structure": back})).await;
    assert_eq!(hints(&mut session, &script).await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);
    let deleted = json!({
        "array": {"start": 1, "deleteCount": 1}, "didClose": [{"uri": script}],
    });
    change(&mut session, json!({"structure": deleted})).await;
    assert_eq!(hints(&mut session, &script).await, Vec::<String>::new());
    session.client.goodbye().await;
}

/// The titles and edits of the code actions at a line of a cell, 0-based.
async fn actions(session: &mut Session, cell: &str, line: u32) -> Vec<(String, Value)> {
    let at = json!({"line": line, "character": 0});
    let context = json!({"diagnostics": [], "only": ["refactor.rewrite"], "triggerKind": 1});
    let range = json!({"start": at, "end": at});
    let params = json!({"textDocument": {"uri": cell}, "range": range, "context": context});
    let found = session.client.request("textDocument/codeAction", params).await.expect("actions");
    let found = found.as_array().cloned().unwrap_or_default();
    let shown =
        |one: &Value| (one["title"].as_str().unwrap_or_default().into(), one["edit"].clone());
    found.iter().map(shown).collect()
}

#[tokio::test]
async fn an_edit_spans_cells() {
    let (mut session, imports, script) = profiled().await;
    // The model and its optimizer are made in the first cell.
    let model = "%matplotlib inline\nimport torch\nmodel = torch.nn.Linear(4, 4)\n\
                 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n";
    let training = "for batch in loader:\n    loss = model(batch).sum()\n    loss.backward()\n    \
                    optimizer.step()\n";
    for (uri, text) in [(&imports, model), (&script, training)] {
        let text = json!([{"document": {"uri": uri, "version": 5}, "changes": [{"text": text}]}]);
        change(&mut session, json!({"textContent": text})).await;
    }
    let found = actions(&mut session, &script, 0).await;
    let edit = |title: &str| {
        let found = found.iter().find(|(one, _)| one.contains(title));
        let (_, edit) = found.unwrap_or_else(|| panic!("no {title}"));
        &edit["documentChanges"][0]
    };
    let fused = edit("fused=True");
    assert_eq!(fused["textDocument"], json!({"uri": imports, "version": 5}));
    assert_eq!(fused["edits"][0]["newText"], ", fused=True");
    assert_eq!(fused["edits"][0]["range"]["start"], json!({"line": 3, "character": 54}));
    let autocast = edit("bf16 autocast");
    assert_eq!(autocast["textDocument"], json!({"uri": script, "version": 5}));
    session.client.goodbye().await;
}

#[tokio::test]
async fn an_edited_cell_is_estimated() {
    let (mut session, _, script) = profiled().await;
    let edited = SCRIPT.replace("model", "my_model");
    let text = json!([{"document": {"uri": script, "version": 2}, "changes": [{"text": edited}]}]);
    change(&mut session, json!({"textContent": text})).await;
    let request = session.estimating().await.request;
    let cell = session.root.join("train.ipynb#2");
    let sent = request.texts.iter().find(|(path, _)| *path == cell).expect("the cell");
    assert_eq!(sent.1.text(), edited);
    assert_eq!(request.profile.changed, Some(session.root.join("train.ipynb")));
    session.client.goodbye().await;
}

#[tokio::test]
async fn changes_that_match_no_notebook_do_no_harm() {
    let (mut session, _, script) = profiled().await;
    let beyond = json!({"array": {"start": 4_000_000_000_u32, "deleteCount": 4_000_000_000_u32}});
    change(&mut session, json!({"structure": beyond})).await;
    let other = json!({"notebookDocument": {"uri": "file:///elsewhere.ipynb"}});
    session.client.notify("notebookDocument/didSave", other).await;
    let untitled = json!({
        "uri": "untitled:Untitled-1.ipynb", "notebookType": "jupyter-notebook", "version": 1,
        "cells": [cell_entry("vscode-notebook-cell:Untitled-1.ipynb#W0", true)],
    });
    let texts = [text_document("vscode-notebook-cell:Untitled-1.ipynb#W0", SCRIPT)];
    let opened = json!({"notebookDocument": untitled, "cellTextDocuments": texts});
    session.client.notify("notebookDocument/didOpen", opened).await;
    assert!(!session.has_run().await);
    assert_eq!(hints(&mut session, &script).await, ["2: 40 ms · 40%", "3: 60 ms · 60%"]);

    let texts = json!([{"uri": script}]);
    let closed = json!({
        "notebookDocument": {"uri": session.uri("train.ipynb")}, "cellTextDocuments": texts,
    });
    session.client.notify("notebookDocument/didClose", closed).await;
    assert_eq!(hints(&mut session, &script).await, Vec::<String>::new());
    session.client.goodbye().await;
}
