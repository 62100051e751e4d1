//! Loads the recordings of real programs in `tests/recordings`.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod large;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use ridgeline_analysis::attribution::{attribute, step_graph};
use ridgeline_analysis::devices::device_table::DeviceTable;
use ridgeline_analysis::diagnose;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::optimize::facts::Probes;
use ridgeline_analysis::optimize::study::{RecordedRun, device_of};
use ridgeline_analysis::python::semantics::{Entry, Project};
use ridgeline_analysis::recording::Recording;
use ridgeline_analysis::recording::chrome_trace::Options;
use ridgeline_analysis::recording::line_log::LineLog;
use ridgeline_analysis::recording::manifest::Manifest;
use ridgeline_analysis::recording::trace::Trace;

/// Returns the root folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).expect("the file")).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// Reads a gzip-compressed Kineto trace.
pub(crate) fn trace(path: &Path) -> Trace {
    Trace::read(GzDecoder::new(File::open(path).expect("the trace")), &Options::default())
        .expect("a trace")
}

/// Reads a recording written by the agent.
pub(crate) fn recording(folder: &Path) -> Recording {
    let manifest = std::fs::read(folder.join("manifest.json")).expect("the manifest");
    let manifest = Manifest::parse(&manifest).expect("a manifest");
    let lines = LineLog::parse(&gunzip(&folder.join("lines.bin.gz")), &manifest);
    Recording {
        trace: trace(&folder.join("trace.json.gz")),
        lines: Some(lines.expect("a line log")),
        manifest: Some(manifest),
        ceilings: None,
    }
}

/// Returns the findings of a recording, without probes.
pub(crate) fn findings_of(recording: Recording, project: &dyn Project) -> Vec<Finding> {
    let profile = attribute(&recording).expect("a profile");
    let recorded = step_graph(&recording, &profile).expect("a graph");
    let on_gpu = !recording.trace.activities.is_empty();
    let device = device_of(&profile, on_gpu, DeviceTable::shipped(), 2);
    let profile = Arc::new(profile);
    let subject = RecordedRun { recorded, profile, manifest: recording.manifest, device };
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    diagnose::diagnose(&subject, &Probes::default(), project, &entry)
}

/// Returns the name and folder of each recording in the repository, sorted by name.
pub(crate) fn recordings() -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = std::fs::read_dir(root().join("tests/recordings"))
        .expect("the recordings")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_string_lossy().into_owned();
            path.join("manifest.json").exists().then_some((name, path))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// Returns the paths of the third-party traces. Prints a message and returns `None` if they are not
/// available.
pub(crate) fn sample_traces() -> Option<Vec<PathBuf>> {
    let shared = std::env::var_os("RIDGELINE_SHARED").map_or(root().join("../shared"), Into::into);
    let Ok(folder) = std::fs::read_dir(shared.join("traces")) else {
        eprintln!("skipped: no sample traces at {}", shared.display());
        return None;
    };
    let mut traces: Vec<PathBuf> = folder
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    traces.sort();
    assert!(!traces.is_empty());
    Some(traces)
}
