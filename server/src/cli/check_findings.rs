//! What is found in a finished run.

use std::path::Path;

use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::source::batch_site::Entry;

use crate::batch::Sources;
use crate::profiler::Profiled;
use crate::what_if;

/// The findings of a run, the costliest first. It reads the recording once more.
///
/// # Errors
/// Why there are none: a sentence without a full stop.
pub fn of_run(profiled: &Profiled) -> Result<Vec<Finding>, String> {
    let subject = what_if::subject(profiled)?;
    let root = profiled.root.canonicalize().unwrap_or_else(|_| Path::new("").to_owned());
    let sources = Sources::new(&root, []);
    let entry = subject.manifest.as_ref().and_then(|manifest| manifest.entry.as_ref());
    let path = entry.and_then(|entry| entry.path.clone()).unwrap_or_default();
    Ok(diagnose::diagnose(&subject, &sources, &Entry { path, ..Entry::default() }))
}
