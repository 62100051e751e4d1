//! The report of a measurement: what the panel shows of it, in one page that opens from disk.

use ridgeline_analysis::present::panel::{self, PanelInput};
use ridgeline_analysis::present::report::{self, Report};
use ridgeline_analysis::present::timeline::{Timeline, timeline};
use serde_json::json;

use crate::history;
use crate::panel::page::BUILT;
use crate::pipeline;
use crate::profiler::Profiled;
use crate::store::Store;
use crate::what_if::{Found, pairs};

/// The page; `texts` are those of the profile's files, by the same index, `findings` what was found in
/// it and `what_ifs` what optimizations would bring, where that is known, and `store` is where the
/// project's history is kept.
///
/// # Errors
/// Where the recording cannot be read any more, or the built page is not one that can hold it.
pub(crate) fn page(
    profiled: &Profiled,
    texts: &[Option<&str>],
    findings: Option<&panel::Findings>,
    what_ifs: Option<&Found>,
    store: &Store,
) -> anyhow::Result<String> {
    let title = profiled.root.file_name().map(|name| name.to_string_lossy().into_owned());
    let title = title.unwrap_or_else(|| "Ridgeline".to_owned());
    let profile = &*profiled.profile;
    let when_unix_ms = profiled.when_unix_ms.unwrap_or(0);
    let what_ifs = what_ifs.map(|found| told(found, profiled, store));
    let history = history::Shown::of(Some(store), profiled, 0);
    let document = panel::document(&PanelInput {
        project: &title,
        status: json!({"state": "idle", "message": null, "run": null}),
        profile: Some(profile),
        when_unix_ms,
        texts,
        history: &history.runs,
        last: history.last.as_ref(),
        head: history.head.as_ref(),
        elsewhere: profiled.elsewhere.as_deref(),
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

/// What optimizations would bring, with what was measured of it. Nobody can edit from a report.
fn told(found: &Found, profiled: &Profiled, store: &Store) -> panel::WhatIfs {
    let (study, message) = match found {
        Ok(study) => (Some(study.clone()), None),
        Err(why) => (None, Some(format!("Estimated speedups are not available: {why}."))),
    };
    let pairs = pairs::read_of_device(store, &profiled.root, &profiled.profile.device);
    panel::WhatIfs { study, message, pairs, ..panel::WhatIfs::default() }
}

/// Read from the recording anew: a profile keeps what an iteration costs, not what ran when.
fn timeline_of(profiled: &Profiled) -> anyhow::Result<Timeline> {
    let Some(folder) = &profiled.recording else { return Ok(Timeline::empty(0)) };
    Ok(timeline(&pipeline::load(folder)?, 0, report::MOST_SPANS))
}
