//! Applies the quick fixes of findings to source texts.

use std::collections::HashMap;
use std::sync::Arc;

use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

/// Applies the fix of a finding in the program `entry`, if it has one.
///
/// # Errors
/// If the fix is refused.
pub(super) fn fix(
    texts: &mut HashMap<String, Arc<str>>,
    entry: &str,
    finding: &Value,
) -> Result<(), String> {
    let Some(name) = finding["fix"].as_str() else { return Ok(()) };
    let kind = EditKind::from_name(name).ok_or_else(|| format!("there is no edit {name}"))?;
    let entry = Entry { path: entry.to_owned(), ..Entry::default() };
    let place = finding["line"].as_u64().and_then(|line| u32::try_from(line).ok());
    let (Some(file), Some(line)) = (finding["file"].as_str(), place) else {
        return Err(format!("{name} has no place: {finding}"));
    };
    // Two workers: the machines that run tests are small.
    let request = Request { kind, lines: &[(file, line)], count: Some(2) };
    let rewritten = rewrite(texts, &entry, &request)
        .map_err(|refusal| format!("{name} is refused: {refusal:?}"))?;
    for file in &rewritten.files {
        let after = file.applied(&texts[&file.path]);
        texts.insert(file.path.clone(), after.into());
    }
    Ok(())
}
