//! The panel's documents, built from a measurement and the project's stored data. The functions
//! read files and compute, so call them on a background thread.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ridgeline_analysis::compare::compare;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::present::compare::{self as present, RunLabel};
use ridgeline_analysis::present::panel::{self, PanelInput, document as panel_document};
use ridgeline_analysis::present::timeline::{MAX_SPANS, timeline};
use serde::Serialize;
use serde_json::Value;

use crate::batch::BatchView;
use crate::documents::texts_on_disk;
use crate::findings;
use crate::history;
use crate::pipeline;
use crate::pool::RequestError;
use crate::profiler::Profiled;
use crate::requests::EditContext;
use crate::store::Store;
use crate::what_if::{StudyOutcome, pairs};

/// The number of cached timelines: that of the newest measurement, and the previous one for a page
/// that has not yet received the newest. Each has a few megabytes.
const CACHED_TIMELINES: usize = 2;

/// The data of a document.
#[derive(Clone, Debug)]
pub(crate) struct DocumentInput {
    /// The measurement and its generation.
    pub measured: Option<(u64, Arc<Profiled>)>,
    /// The project's name.
    pub project: String,
    /// Whether an editor can go to a line.
    pub can_jump: bool,
    /// Whether an editor can highlight a line.
    pub can_highlight: bool,
    /// The status of the workspace.
    pub status: Value,
    /// The store with the history.
    pub store: Option<Store>,
    /// The user's GPU prices per hour, by GPU name.
    pub prices: BTreeMap<String, f64>,
    /// The batch-size sweep, and whether it is still running.
    pub batch: Option<(BatchView, bool)>,
    /// The what-ifs.
    pub what_ifs: WhatIfsState,
    /// The findings, or `None` if they are turned off.
    pub findings: Option<FindingsState>,
}

/// The state of the findings.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindingsState {
    /// The findings of the measurement.
    pub set: Option<Arc<findings::FindingSet>>,
    /// Whether the measurement was inspected, or cannot be.
    pub is_known: bool,
}

/// The state of the what-ifs.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhatIfsState {
    /// The predictions, or `None` while they are computed.
    pub found: Option<StudyOutcome>,
    /// Why the last measurement of a what-if failed.
    pub message: Option<String>,
    /// The what-if being measured.
    pub measuring: Option<String>,
    /// The data for their edits.
    pub edit_context: Option<EditContext>,
}

/// Builds the document, as JSON.
///
/// # Errors
/// If it cannot be serialized, which would be a bug.
pub(crate) fn document(facts: &DocumentInput) -> Result<Arc<str>, RequestError> {
    let profiled = facts.measured.as_ref().map(|(generation, profiled)| (*generation, &**profiled));
    let texts = profiled.map(|(_, profiled)| texts_on_disk(&profiled.files)).unwrap_or_default();
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let history = profiled.map(|(generation, profiled)| {
        history::PanelHistory::of(facts.store.as_ref(), profiled, generation)
    });
    let history = history.unwrap_or_default();
    let device_comparison =
        profiled.and_then(|(_, profiled)| compare_devices(profiled, &facts.prices));
    let batch_sizes = facts
        .batch
        .as_ref()
        .map(|(batch, is_measuring)| batch.results.for_panel(&batch.sources(), *is_measuring));
    let gpu_batches =
        facts.batch.as_ref().and_then(|(batch, _)| batch.results.gpu_batches.as_ref());
    let gpu_batches = device_comparison
        .as_ref()
        .zip(gpu_batches)
        .map(|(comparison, batches)| batches.with_prices_of(comparison));
    json(&panel_document(&PanelInput {
        generation: profiled.map_or(0, |(generation, _)| generation),
        project: &facts.project,
        can_jump: facts.can_jump,
        can_highlight: facts.can_highlight,
        status: facts.status.clone(),
        profile: profiled.map(|(_, profiled)| &*profiled.profile),
        when_unix_ms: profiled.and_then(|(_, profiled)| profiled.when_unix_ms).unwrap_or_default(),
        texts: &texts,
        history: &history.runs,
        last: history.last.as_ref(),
        head: history.head.as_ref(),
        device_comparison: device_comparison.as_deref(),
        gpu_batches: gpu_batches.as_ref(),
        batch_sizes: batch_sizes.as_ref(),
        what_ifs: Some(&what_ifs(facts)),
        findings: facts.findings.as_ref().map(|known| panel_findings(facts, known)).as_ref(),
    }))
}

/// Compares two runs of a project, by their times, as JSON.
///
/// # Errors
/// If the costs of one of them are not stored.
pub(crate) fn compare_runs(
    store: Option<&Store>,
    root: &Path,
    before: u64,
    after: u64,
) -> Result<Arc<str>, RequestError> {
    let history = store.map(|store| history::read(store, root)).unwrap_or_default();
    let find = |when: u64| {
        let run = store.and_then(|store| history::run(store, root, when));
        let run = run.ok_or_else(|| {
            RequestError::Invalid("per-line costs of that run are not stored".to_owned())
        })?;
        let record = history.iter().find(|record| record.when_unix_ms == when);
        let named = RunLabel {
            name: String::new(),
            when_unix_ms: Some(when),
            commit: record.and_then(|record| record.commit.clone()),
            clean: record.is_some_and(|record| record.clean),
        };
        Ok::<_, RequestError>((run, named))
    };
    let ((before, named_before), (after, named_after)) = (find(before)?, find(after)?);
    let comparison = compare(&before, &after);
    json(&present::document(&comparison, [&named_before, &named_after]))
}

fn panel_findings(facts: &DocumentInput, known: &FindingsState) -> panel::Findings {
    let FindingsState { set, is_known } = known;
    let Some(set) = set else {
        let message = match is_known {
            true => "Findings are not available for this measurement.",
            false => "Looking for findings…",
        };
        return panel::Findings { found: Vec::new(), message: Some(message.to_owned()) };
    };
    let edit_context = facts.what_ifs.edit_context.as_ref();
    let found = match edit_context {
        Some(edit_context) => edit_context.panel_findings(set),
        None => findings_without_edits(&set.findings),
    };
    panel::Findings { found, message: None }
}

/// Findings without edits, for pages that cannot apply them.
pub(crate) fn findings_without_edits(findings: &[Finding]) -> Vec<panel::PanelFinding> {
    findings
        .iter()
        .map(|finding| panel::PanelFinding { finding: finding.clone(), edit: None })
        .collect()
}

fn what_ifs(facts: &DocumentInput) -> panel::WhatIfs {
    let WhatIfsState { found, message, measuring, edit_context } = &facts.what_ifs;
    let (study, instead) = match found {
        Some(Ok(study)) => (Some(study.clone()), None),
        Some(Err(why)) => (None, Some(format!("Estimated speedups are not available: {why}."))),
        None => (None, Some("Estimating speedups…".to_owned())),
    };
    let measured = facts.measured.as_ref().map(|(_, profiled)| profiled);
    let pairs = facts.store.as_ref().zip(measured).map(|(store, profiled)| {
        pairs::read_of_device(store, &profiled.root, &profiled.profile.device)
    });
    panel::WhatIfs {
        study,
        message: instead.or_else(|| message.clone()),
        pairs: pairs.unwrap_or_default(),
        measuring: measuring.clone(),
        edits: edit_context.as_ref().map(EditContext::applicable_edits).unwrap_or_default(),
    }
}

/// Compares a measurement with other devices, with the user's prices.
pub(crate) fn compare_devices(
    profiled: &Profiled,
    prices: &BTreeMap<String, f64>,
) -> Option<Arc<Comparison>> {
    let device_comparison = profiled.device_comparison.as_ref()?;
    let is_changed = !prices.is_empty();
    Some(if is_changed {
        Arc::new(device_comparison.with_prices(prices))
    } else {
        device_comparison.clone()
    })
}

/// A cache of timelines. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timelines(Arc<Mutex<VecDeque<CachedTimeline>>>);

/// A timeline as JSON, and the generation of its measurement.
#[derive(Debug)]
struct CachedTimeline {
    generation: u64,
    json: Arc<str>,
}

impl Timelines {
    /// The timeline of a measurement, as JSON. The first caller reads it from the recording. Others
    /// wait for it, so that a recording is not in memory twice.
    ///
    /// # Errors
    /// If the recording is gone or cannot be read.
    pub(crate) fn of(
        &self,
        generation: u64,
        recording: Option<&Path>,
    ) -> Result<Arc<str>, RequestError> {
        let gone = |why: String| {
            RequestError::Invalid(format!(
                "the recording no longer exists: \
            {why}"
            ))
        };
        let recording =
            recording.ok_or_else(|| gone("it was replaced by a newer measurement".to_owned()))?;
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached.iter().find(|known| known.generation == generation) {
            return Ok(known.json.clone());
        }
        let recording = pipeline::load(recording).map_err(|error| gone(error.to_string()))?;
        let timeline_json = json(&timeline(&recording, generation, MAX_SPANS))?;
        drop(recording);
        cached.push_front(CachedTimeline { generation, json: timeline_json.clone() });
        cached.truncate(CACHED_TIMELINES);
        Ok(timeline_json)
    }
}

fn json(value: &impl Serialize) -> Result<Arc<str>, RequestError> {
    let text = serde_json::to_string(value);
    text.map(Into::into).map_err(|error| RequestError::Internal(error.to_string()))
}
