//! Realistic scripts before and after an edit.

use std::collections::HashMap;
use std::sync::Arc;

use expect_test::Expect;

use super::*;
use ridgeline_python::SourceIndex;
use ridgeline_python::semantics::parts::notebook_of;
use ridgeline_python::syntax::cell_magics::python_of_cell;

mod cuda_graphs;
mod data_parallel;
mod demos;
mod fixes;
mod fused_attention;
mod gradient_compression;
mod half;
mod layers;
mod models;
mod notebooks;
mod offload;
mod prefetch;
mod refusals;
mod small;
mod validation;

pub(super) fn project(files: &[(&str, &str)]) -> (HashMap<String, Arc<str>>, Entry) {
    let texts = files.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect();
    let first = files[0].0;
    let entry = Entry {
        path: notebook_of(first).unwrap_or(first).to_owned(),
        provider: files[0].1.contains("def skyline_"),
        ..Entry::default()
    };
    (texts, entry)
}

pub(super) fn request_for(kind: EditKind) -> Request<'static> {
    Request { kind, lines: &[], count: None }
}

/// Returns the texts after an edit. Checks that they are valid Python, and that a repeated request
/// reports the edit as present.
#[track_caller]
pub(super) fn edited(files: &[(&str, &str)], request: Request<'_>) -> HashMap<String, Arc<str>> {
    let (mut texts, entry) = project(files);
    let rewrite = match rewrite(&texts, &entry, &request) {
        Ok(rewrite) => rewrite,
        Err(refusal) => panic!("refused: {refusal}"),
    };
    for file in &rewrite.files {
        let after = file.applied(&texts[&file.path]);
        let is_cell = notebook_of(&file.path).is_some();
        let index = SourceIndex::new(if is_cell { python_of_cell(&after) } else { after.clone() });
        assert!(index.tree().is_some_and(|tree| !tree.root_node().has_error()), "{after}");
        texts.insert(file.path.clone(), after.into());
    }
    // The requested lines may have moved.
    let again = Request { lines: &[], ..request };
    if request.lines.is_empty() {
        let again = super::rewrite(&texts, &entry, &again);
        assert!(matches!(again, Err(Refusal::Done(_))), "once more: {again:?}\n{texts:#?}");
    }
    texts
}

/// Checks the lines changed by an edit, as `-` and `+`, with file names if there are several.
#[track_caller]
pub(super) fn check_files(files: &[(&str, &str)], request: Request<'_>, expected: Expect) {
    let after = edited(files, request);
    let mut shown = String::new();
    for (path, before) in files {
        let after = after[*path].as_ref();
        if after == *before {
            continue;
        }
        if files.len() > 1 {
            shown.push_str(&format!("== {path}\n"));
        }
        shown.push_str(&changed_lines(before, after));
    }
    expected.assert_eq(&shown);
}

#[track_caller]
pub(super) fn check(kind: EditKind, script: &str, expected: Expect) {
    check_files(&[("train.py", script)], request_for(kind), expected);
}

/// Returns the lines that differ, with one line of context. `\r` is shown.
pub(super) fn changed_lines(before: &str, after: &str) -> String {
    let before: Vec<&str> = before.split('\n').collect();
    let after: Vec<&str> = after.split('\n').collect();
    // Longest common subsequence by dynamic programming: test texts are short.
    let mut table = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            let longer = table[i + 1][j].max(table[i][j + 1]);
            table[i][j] = if old == new { table[i + 1][j + 1] + 1 } else { longer };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines: Vec<(char, &str)> = Vec::new();
    while i < before.len() || j < after.len() {
        let is_same = i < before.len() && j < after.len() && before[i] == after[j];
        if is_same {
            lines.push((' ', before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= after.len() || (i < before.len() && table[i + 1][j] >= table[i][j + 1]) {
            lines.push(('-', before[i]));
            i += 1;
        } else {
            lines.push(('+', after[j]));
            j += 1;
        }
    }
    let is_near = |at: usize| {
        let around = at.saturating_sub(1)..(at + 2).min(lines.len());
        lines[around].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut shown = String::new();
    let mut was_near = true;
    for (at, (mark, line)) in lines.iter().enumerate() {
        if is_near(at) {
            if !was_near && !shown.is_empty() {
                shown.push_str("…\n");
            }
            let line = format!("{mark}{}", line.replace('\r', "␍"));
            shown.push_str(line.trim_end());
            shown.push('\n');
        }
        was_near = is_near(at);
    }
    shown
}

/// Checks the reason of a refusal. `Done` is shown with the prefix `done: `.
#[track_caller]
pub(super) fn check_refused_files(files: &[(&str, &str)], request: Request<'_>, expected: Expect) {
    let (texts, entry) = project(files);
    match rewrite(&texts, &entry, &request) {
        Ok(rewrite) => panic!("made {rewrite:#?}"),
        Err(Refusal::Done(why)) => expected.assert_eq(&format!("done: {why}")),
        Err(Refusal::NotUnderstood(why)) => expected.assert_eq(&why),
    }
}

#[track_caller]
pub(super) fn check_refused(kind: EditKind, script: &str, expected: Expect) {
    check_refused_files(&[("train.py", script)], request_for(kind), expected);
}

/// A typical training script.
pub(super) const PLAIN: &str = "\
import torch
from torch import nn
from torch.utils.data import DataLoader

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(3):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        # forward
        out = model(x)

        loss = criterion(out, y)  # the loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
";

#[test]
fn edit_names_and_titles_are_unique() {
    let all: Vec<EditKind> = EditKind::ALL.into_iter().chain(EditKind::FIXES).collect();
    for kind in &all {
        assert_eq!(EditKind::from_name(kind.name()), Some(*kind));
        assert_eq!(kind.optimization().is_some(), EditKind::ALL.contains(kind));
        assert!(all.iter().filter(|other| other.title() == kind.title()).count() == 1);
    }
}

#[test]
fn the_optimization_of_each_edit_has_it() {
    for kind in EditKind::ALL {
        let optimization = crate::study::optimization(kind.name()).expect("an optimization");
        assert_eq!(optimization.edit(), Some(kind));
    }
}

#[test]
fn the_documentation_lists_all_edits() {
    let page = include_str!("../../../../docs/whatif.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Apply"));
    let rows = section.into_iter().flat_map(str::lines).filter(|line| line.starts_with("| `"));
    let rows: Vec<String> = rows.map(str::to_owned).collect();
    let edits = EditKind::ALL;
    let expected = edits.map(|kind| format!("| `{}` | {} |", kind.name(), kind.title()));
    assert_eq!(rows, expected);
    let page = include_str!("../../../../docs/findings/README.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let fixes = EditKind::FIXES;
    let expected = fixes.map(|kind| format!("| `{}` | {} |", kind.name(), kind.title()));
    assert_eq!(rows, expected);
}
