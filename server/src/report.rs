//! The report of a measurement: the panel in one page that opens from disk.

use ridgeline_analysis::present::panel::{self, PanelInput};
use ridgeline_analysis::present::report::{self, Report};
use ridgeline_analysis::present::timeline::{Timeline, timeline};
use serde_json::json;

use crate::history;
use crate::panel::page::BUILT;
use crate::pipeline;
use crate::profiler::Profiled;
use crate::store::Store;
use crate::what_if::{StudyOutcome, pairs};

/// Returns the page. `texts` has the texts of the profile's files by index, `findings` and
/// `what_ifs` are included if known, and `store` has the project's history.
///
/// # Errors
/// If the recording cannot be read any more, or the built page has no place for the document.
pub(crate) fn page(
    profiled: &Profiled,
    texts: &[Option<&str>],
    findings: Option<&panel::Findings>,
    what_ifs: Option<&StudyOutcome>,
    store: &Store,
) -> anyhow::Result<String> {
    let title = profiled.root.file_name().map(|name| name.to_string_lossy().into_owned());
    let title = title.unwrap_or_else(|| "Ridgeline".to_owned());
    let profile = &*profiled.profile;
    let when_unix_ms = profiled.when_unix_ms.unwrap_or(0);
    let what_ifs = what_ifs.map(|found| with_measurements(found, profiled, store));
    let history = history::PanelHistory::of(Some(store), profiled, 0);
    let document = panel::document(&PanelInput {
        project: &title,
        status: json!({"state": "idle", "message": null, "run": null}),
        profile: Some(profile),
        when_unix_ms,
        texts,
        history: &history.runs,
        last: history.last.as_ref(),
        head: history.head.as_ref(),
        device_comparison: profiled.device_comparison.as_deref(),
        findings,
        what_ifs: what_ifs.as_ref(),
        ..PanelInput::default()
    });
    let timeline = timeline_of(profiled)?;
    let title = title.as_str();
    let report =
        Report { profile, texts, title, document: &document, timeline: &timeline, panel: BUILT };
    Ok(report::html(&report)?)
}

/// Returns the estimated speedups, with the measured ones. A report has no edits to apply.
fn with_measurements(found: &StudyOutcome, profiled: &Profiled, store: &Store) -> panel::WhatIfs {
    let (study, message) = match found {
        Ok(study) => (Some(study.clone()), None),
        Err(why) => (None, Some(format!("Estimated speedups are not available: {why}."))),
    };
    let pairs = pairs::read_of_device(store, &profiled.root, &profiled.profile.device);
    panel::WhatIfs { study, message, pairs, ..panel::WhatIfs::default() }
}

/// Reads the recording again: the profile has costs, not when things ran.
fn timeline_of(profiled: &Profiled) -> anyhow::Result<Timeline> {
    let Some(folder) = &profiled.recording else { return Ok(Timeline::empty(0)) };
    Ok(timeline(&pipeline::load(folder)?, 0, report::MAX_SPANS))
}
