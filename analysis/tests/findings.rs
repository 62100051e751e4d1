//! Checks the findings of recordings of real programs and of third-party traces.

use crate::recorded;

use std::collections::HashMap;
use std::sync::Arc;

use recorded::{findings_of, recording, recordings, sample_traces, trace};
use ridgeline_analysis::python::semantics::Project;
use ridgeline_analysis::recording::Recording;

/// The folder of a recording's source files.
struct Sources(std::path::PathBuf);

impl Project for Sources {
    fn text(&self, path: &str) -> Option<Arc<str>> {
        std::fs::read_to_string(self.0.join(path)).ok().map(Arc::from)
    }
}

/// A plain profiler trace has no lines or settings, so no finding can be certain.
#[test]
fn third_party_traces_have_no_findings() {
    let Some(traces) = sample_traces() else { return };
    for path in traces {
        let recording = Recording { trace: trace(&path), ..Recording::default() };
        let none: HashMap<String, Arc<str>> = HashMap::new();
        let findings = findings_of(recording, &none);
        assert!(findings.is_empty(), "{}: {findings:#?}", path.display());
    }
}

/// Every finding points at a line of the program and has a finite, nonnegative cost.
#[test]
fn findings_point_at_lines_of_the_program() {
    for (name, folder) in recordings() {
        let recording = recording(&folder);
        let project = Sources(folder.join("src"));
        for finding in findings_of(recording, &project) {
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
