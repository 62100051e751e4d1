//! Terminal output of a profile: sources with costs, the summary, findings, JSON.

use ridgeline_analysis::base::printable::printable;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::present::{findings as found, json, terminal as present};
use ridgeline_analysis::profile::FileId;
use ridgeline_analysis::python::SourceIndex;

use super::terminal::Terminal;
use crate::documents::texts_on_disk;
use crate::profiler::Profiled;

/// The current texts of a profile's files, by the same index.
pub(super) struct Sources(Vec<Option<String>>);

impl Sources {
    /// Reads the files. A file that is gone or is not text has no source. Its costs are still in
    /// the summary.
    pub(super) fn read(profiled: &Profiled) -> Sources {
        Sources(texts_on_disk(&profiled.files))
    }

    /// The texts in the form that `present` takes.
    pub(super) fn texts(&self) -> Vec<Option<&str>> {
        self.0.iter().map(Option::as_deref).collect()
    }
}

/// The headline, phases, memory, the most expensive lines and modules, and notes.
pub(super) fn summary(profiled: &Profiled, terminal: &Terminal) -> String {
    present::summary(&profiled.profile, style(terminal))
}

/// Every file with costs, annotated in the margin. The most expensive file is last, because it
/// stays visible.
pub(super) fn annotated_sources(
    profiled: &Profiled,
    sources: &Sources,
    terminal: &Terminal,
) -> String {
    let profile = &profiled.profile;
    let heading = terminal.heading();
    let mut pages: Vec<(f64, String)> = Vec::new();
    for (index, (file, text)) in profile.files.iter().zip(&sources.0).enumerate() {
        let lines = profile.lines.get(index).map(Vec::as_slice).unwrap_or_default();
        let (Some(text), Ok(id)) = (text, u32::try_from(index)) else { continue };
        if lines.is_empty() {
            continue;
        }
        let cost = lines.iter().map(|line| line.self_time.total()).sum();
        let source = SourceIndex::new(text.as_str());
        let costs = CostMap::build(profile, FileId(id), &source);
        let body = present::annotated_source(profile, &costs, &source, style(terminal));
        let name = printable(&file.path);
        pages.push((cost, format!("{heading}{name}{heading:#}\n{body}\n")));
    }
    pages.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    pages.into_iter().map(|(_, page)| page).collect()
}

/// The terminal's colors and width.
pub(super) fn style(terminal: &Terminal) -> present::Style {
    present::Style { color: terminal.colors(), width: terminal.width() }
}

/// The findings, or the reason why they are unavailable. Empty if there are none.
pub(super) fn findings(
    profiled: &Profiled,
    findings: &Result<Vec<Finding>, String>,
    all: bool,
    terminal: &Terminal,
) -> String {
    match findings {
        Ok(findings) => found::page(findings, &profiled.profile, style(terminal), all),
        Err(why) => format!("\nFindings are not available: {}\n", printable(why)),
    }
}

/// The output of `--json`.
pub(super) fn json(
    profiled: &Profiled,
    sources: &Sources,
    findings: &Result<Vec<Finding>, String>,
) -> json::Document {
    let document = json::document(&profiled.profile, &sources.texts());
    let findings = findings.as_ref().map(Vec::as_slice).map_err(String::as_str);
    document.with_findings(findings, &profiled.profile)
}
