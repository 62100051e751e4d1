//! The entry point of a recorded program.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ridgeline_analysis::python::semantics::Entry;
pub(crate) use ridgeline_analysis::python::semantics::Project as _;
use ridgeline_analysis::recording::manifest;
use serde::Deserialize;

use crate::batch::Sources;

/// The maximum size of a manifest, in bytes. A model of 100,000 modules has a smaller one.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The entry point, from the manifest in a recording's folder.
pub(crate) fn entry_of(recording: &Path, sources: &Sources) -> Option<Entry> {
    #[derive(Deserialize)]
    struct PartialManifest {
        entry: Option<manifest::Entry>,
    }
    let file = File::open(recording.join("manifest.json")).ok()?;
    let mut text = String::new();
    file.take(MAX_MANIFEST_BYTES).read_to_string(&mut text).ok()?;
    entry_point(&serde_json::from_str::<PartialManifest>(&text).ok()?.entry?, sources)
}

/// The entry point, from the entry of a manifest.
pub(crate) fn entry_point(manifest_entry: &manifest::Entry, sources: &Sources) -> Option<Entry> {
    let provider = manifest_entry.kind == "provider";
    let path = match (&manifest_entry.path, &manifest_entry.name) {
        (Some(path), _) => path.clone(),
        (None, Some(name)) => {
            let base = name.replace('.', "/");
            let file = format!("{base}.py");
            if sources.text(&file).is_some() { file } else { format!("{base}/__main__.py") }
        }
        (None, None) => return None,
    };
    Some(Entry { path, provider, ..Entry::default() })
}
