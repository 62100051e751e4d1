//! Findings of recordings of real programs, and of traces that others recorded: tuned or not, they hold
//! none that is not true of them.

use crate::recorded;

use std::collections::HashMap;
use std::sync::Arc;

use recorded::{found, recording, recordings, sample_traces, trace};
use ridgeline_analysis::python::semantics::Project;
use ridgeline_analysis::recording::Recording;

/// The sources of a recording.
struct Sources(std::path::PathBuf);

impl Project for Sources {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        std::fs::read_to_string(self.0.join(path)).ok().map(Arc::from)
    }
}

/// A trace of another profiler says nothing of lines or settings, so that nothing is certain.
#[test]
fn traces_of_others_raise_nothing() {
    let Some(traces) = sample_traces() else { return };
    for path in traces {
        let recording = Recording { trace: trace(&path), ..Recording::default() };
        let none: HashMap<String, Arc<str>> = HashMap::new();
        let told = found(recording, &none);
        assert!(told.is_empty(), "{}: {told:#?}", path.display());
    }
}

/// Every finding of our own recordings is at a line of the program and costs no more than all of it.
#[test]
fn findings_of_recordings_are_within_the_program() {
    for (name, folder) in recordings() {
        let recording = recording(&folder);
        let project = Sources(folder.join("src"));
        for finding in found(recording, &project) {
            let text = project.text(&finding.at.path).unwrap_or_default();
            let lines = text.lines().count();
            let line = finding.at.line as usize;
            assert!(line >= 1 && line <= lines, "{name}: {finding:?}");
            assert!(finding.why.ends_with('.') && !finding.message.ends_with('.'), "{finding:?}");
            let cost = finding.cost.unwrap_or_default();
            assert!(cost.time_ns >= 0.0 && cost.time_ns.is_finite(), "{name}: {finding:?}");
            assert!(cost.bytes >= 0.0 && cost.bytes.is_finite(), "{name}: {finding:?}");
        }
    }
}
