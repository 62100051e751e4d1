//! Shortened versions of typical scripts.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;

mod data_files;
mod frameworks;
mod public_scripts;
mod refusals;
mod scripts;

/// A project of several files; the first is the entry.
pub(super) fn project(files: &[(&str, &str)]) -> (HashMap<String, Arc<str>>, Entry) {
    let texts = files.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect();
    let entry = Entry { path: files[0].0.to_owned(), ..Entry::default() };
    (texts, entry)
}

/// Checks that the batch size is found at `expected`, such as `train.py:3 32`, and that the new
/// number is found after an edit.
#[track_caller]
pub(super) fn check_with(
    files: &[(&str, &str)],
    set: impl FnOnce(&mut Entry),
    expected: &str,
) -> BatchSite {
    let (mut texts, mut entry) = project(files);
    set(&mut entry);
    let site = match batch_site(&texts, &entry) {
        Ok(site) => site,
        Err(refusal) => panic!("refused: {refusal}"),
    };
    assert_eq!(format!("{}:{} {}", site.file, site.line, site.value), expected, "{site:?}");
    let text = texts[&site.file].to_string();
    assert!(text.get(site.span.clone()).is_some(), "{site:?}");
    let mut edited = text;
    edited.replace_range(site.span.clone(), "7919");
    texts.insert(site.file.clone(), edited.into());
    entry.measured = None;
    if let Ok(again) = batch_site(&texts, &entry) {
        assert_eq!((again.value, &again.file, again.line), (7919, &site.file, site.line));
    }
    site
}

#[track_caller]
pub(super) fn check(files: &[(&str, &str)], expected: &str) -> BatchSite {
    check_with(files, |_| {}, expected)
}

/// Checks a single script.
#[track_caller]
pub(super) fn check_script(text: &str, expected: &str) -> BatchSite {
    check(&[("train.py", text)], expected)
}

/// Checks that the batch size is refused with a reason that contains `expected`.
#[track_caller]
pub(super) fn check_refused_with(
    files: &[(&str, &str)],
    set: impl FnOnce(&mut Entry),
    expected: &str,
) {
    let (texts, mut entry) = project(files);
    set(&mut entry);
    match batch_site(&texts, &entry) {
        Ok(site) => panic!("found {site:?}"),
        Err(refusal) => assert!(refusal.message.contains(expected), "{}", refusal.message),
    }
}

#[track_caller]
pub(super) fn check_refused(text: &str, expected: &str) {
    check_refused_with(&[("train.py", text)], |_| {}, expected);
}

/// The usual end of a script: a loop over `loader`.
pub(super) const LOOP: &str = "
for x, y in loader:
    loss = f(model(x), y)
    loss.backward()
    optimizer.step()
";

#[test]
fn the_cell_of_a_notebook() {
    let cells = [
        "!pip install torch\nfrom torch.utils.data import DataLoader",
        "BATCH = 32",
        "loader = DataLoader(data, batch_size=BATCH)",
        "for x in loader:\n    loss = model(x).sum()\n    loss.backward()\n    optimizer.step()",
    ];
    let texts: HashMap<String, Arc<str>> = (1..)
        .zip(cells)
        .map(|(number, cell): (u32, &str)| (format!("a.ipynb#{number}"), cell.into()))
        .collect();
    let entry = Entry { path: "a.ipynb".to_owned(), ..Entry::default() };
    let site = batch_site(&texts, &entry).expect("a batch size");
    assert_eq!((site.file.as_str(), site.line, site.value), ("a.ipynb#2", 1, 32));
    assert_eq!(site.span, 8..10);
}
