//! The documents that a page asks for, made from a measurement and what is kept of the project.
//! It reads files and computes, so it is for threads on which that disturbs nobody.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ridgeline_analysis::compare::compare;
use ridgeline_analysis::diagnose::finding::Finding;
use ridgeline_analysis::predict::device_comparison::Comparison;
use ridgeline_analysis::present::compare::{self as present, Named};
use ridgeline_analysis::present::panel::{self, PanelInput, document as panel_document};
use ridgeline_analysis::present::timeline::{MOST_SPANS, timeline};
use serde::Serialize;
use serde_json::Value;

use crate::batch::BatchView;
use crate::documents::texts_on_disk;
use crate::findings;
use crate::history;
use crate::pipeline;
use crate::pool::RequestError;
use crate::profiler::Profiled;
use crate::requests::Applying;
use crate::store::Store;
use crate::what_if::{Found, pairs};

/// Timelines that are kept: that of the newest measurement, and the one before it for a page that
/// has not heard of it yet. One has a few megabytes.
const TIMELINES_KEPT: usize = 2;

/// What a document is made from.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The measurement and its generation.
    pub measured: Option<(u64, Arc<Profiled>)>,
    /// What the project is called.
    pub project: String,
    /// An editor is there that can go to a line.
    pub can_jump: bool,
    /// It can mark one.
    pub can_highlight: bool,
    /// What goes on.
    pub status: Value,
    /// Where the history is kept.
    pub store: Option<Store>,
    /// What an hour of GPUs costs, as the person set it, by their names.
    pub prices: BTreeMap<String, f64>,
    /// What is known of other batch sizes, and whether more is being found out.
    pub batch: Option<(BatchView, bool)>,
    /// What optimizations would bring.
    pub what_ifs: WhatIfs,
    /// What was found to be slow or wasteful; nothing where nobody looks.
    pub findings: Option<Findings>,
}

/// What is known of findings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// What a measurement shows.
    pub kept: Option<Arc<findings::Kept>>,
    /// Whether the measurement was looked at, or cannot be.
    pub is_known: bool,
}

/// What is known of what-ifs.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhatIfs {
    /// What was predicted; nothing while that is worked out.
    pub found: Option<Found>,
    /// Why the last measurement of one came to nothing.
    pub message: Option<String>,
    /// The one that is being measured.
    pub measuring: Option<String>,
    /// What their edits need.
    pub applying: Option<Applying>,
}

/// The document, as JSON.
///
/// # Errors
/// Where it cannot be written as JSON, which would be a defect.
pub(crate) fn document(facts: &Facts) -> Result<Arc<str>, RequestError> {
    let profiled = facts.measured.as_ref().map(|(generation, profiled)| (*generation, &**profiled));
    let texts = profiled.map(|(_, profiled)| texts_on_disk(&profiled.files)).unwrap_or_default();
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    let history = profiled.map(|(generation, profiled)| {
        history::Shown::of(facts.store.as_ref(), profiled, generation)
    });
    let history = history.unwrap_or_default();
    let elsewhere = profiled.and_then(|(_, profiled)| priced(profiled, &facts.prices));
    let batch_sizes = facts
        .batch
        .as_ref()
        .map(|(batch, is_measuring)| batch.exploration.for_panel(&batch.sources(), *is_measuring));
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
        elsewhere: elsewhere.as_deref(),
        batch_sizes: batch_sizes.as_ref(),
        what_ifs: Some(&what_ifs(facts)),
        findings: facts.findings.as_ref().map(|known| found(facts, known)).as_ref(),
    }))
}

/// Two runs of a project side by side, by when they were, as JSON.
///
/// # Errors
/// Where what one of them cost is not kept.
pub(crate) fn compared(
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
        let named = Named {
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

fn found(facts: &Facts, known: &Findings) -> panel::Findings {
    let Findings { kept, is_known } = known;
    let Some(kept) = kept else {
        let message = match is_known {
            true => "Findings are not available for this measurement.",
            false => "Looking for findings…",
        };
        return panel::Findings { found: Vec::new(), message: Some(message.to_owned()) };
    };
    let applying = facts.what_ifs.applying.as_ref();
    let found = match applying {
        Some(applying) => applying.found(kept),
        None => unmended(&kept.findings),
    };
    panel::Findings { found, message: None }
}

/// Findings of which nobody can make the edits.
pub(crate) fn unmended(findings: &[Finding]) -> Vec<panel::Found> {
    findings.iter().map(|finding| panel::Found { finding: finding.clone(), edit: None }).collect()
}

fn what_ifs(facts: &Facts) -> panel::WhatIfs {
    let WhatIfs { found, message, measuring, applying } = &facts.what_ifs;
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
        edits: applying.as_ref().map(Applying::possible).unwrap_or_default(),
    }
}

/// A measurement's comparison with other devices, with the prices that the person set.
pub(crate) fn priced(
    profiled: &Profiled,
    prices: &BTreeMap<String, f64>,
) -> Option<Arc<Comparison>> {
    let elsewhere = profiled.elsewhere.as_ref()?;
    let is_changed = !prices.is_empty();
    Some(if is_changed { Arc::new(elsewhere.with_prices(prices)) } else { elsewhere.clone() })
}

/// Timelines of measurements. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timelines(Arc<Mutex<VecDeque<Kept>>>);

/// A timeline as JSON, and the generation of its measurement.
#[derive(Debug)]
struct Kept {
    generation: u64,
    json: Arc<str>,
}

impl Timelines {
    /// The timeline of a measurement, as JSON. It is read from its recording by who asks first;
    /// others wait for it, so that a recording is not in memory twice.
    ///
    /// # Errors
    /// Where the recording is gone, or cannot be read.
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| known.generation == generation) {
            return Ok(known.json.clone());
        }
        let recording = pipeline::load(recording).map_err(|error| gone(error.to_string()))?;
        let made = json(&timeline(&recording, generation, MOST_SPANS))?;
        drop(recording);
        kept.push_front(Kept { generation, json: made.clone() });
        kept.truncate(TIMELINES_KEPT);
        Ok(made)
    }
}

fn json(value: &impl Serialize) -> Result<Arc<str>, RequestError> {
    let text = serde_json::to_string(value);
    text.map(Into::into).map_err(|error| RequestError::Internal(error.to_string()))
}
