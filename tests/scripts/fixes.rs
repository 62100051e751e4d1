//! Quick fixes of findings, made in texts.

use std::collections::HashMap;
use std::sync::Arc;

use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

/// Makes the fix of a finding of `entry`'s, where it has one. Says why one is refused.
pub(super) fn fix(
    texts: &mut HashMap<String, Arc<str>>,
    entry: &str,
    finding: &Value,
) -> Result<(), String> {
    let Some(name) = finding["fix"].as_str() else { return Ok(()) };
    let kind = EditKind::of_name(name).ok_or_else(|| format!("there is no edit {name}"))?;
    let entry = Entry { path: entry.to_owned(), ..Entry::default() };
    let place = finding["line"].as_u64().and_then(|line| u32::try_from(line).ok());
    let (Some(file), Some(line)) = (finding["file"].as_str(), place) else {
        return Err(format!("{name} has no place: {finding}"));
    };
    // Two workers: the machines that run tests are small.
    let request = Request { kind, lines: &[(file, line)], count: Some(2) };
    let made = rewrite(texts, &entry, &request)
        .map_err(|refusal| format!("{name} is refused: {refusal:?}"))?;
    for file in &made.files {
        let after = file.applied(&texts[&file.path]);
        texts.insert(file.path.clone(), after.into());
    }
    Ok(())
}
