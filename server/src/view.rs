//! A snapshot of a document with everything known about it. Requests work on it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::profile::{FileId, Profile};
use ridgeline_analysis::python::{TrainingScript, training_cell, training_script};

use crate::documents::{DocumentId, DocumentSnapshot};
use crate::findings::{FindingSet, PlacedFinding, in_text};
use crate::lsp::position::Encoding;
use crate::notebook;
use crate::pool::RequestError;
use crate::profiler::Profiled;
use crate::settings::Settings;
use crate::state::Client;

/// A profile, and the document's place in it.
#[derive(Clone, Debug)]
pub(crate) struct DocumentProfile {
    /// The newest profile that contains the document.
    pub profiled: Arc<Profiled>,
    /// The document's file in the profile.
    pub file: FileId,
    /// Identifies the profile. Numbers are never reused.
    pub generation: u64,
}

/// What was computed from one edition of a document and one profile. It is a cache: everything in
/// it can be computed again.
#[derive(Debug, Default)]
pub(crate) struct DerivedCache {
    costs: OnceLock<CostMap>,
    training: OnceLock<TrainingScript>,
}

/// [`DerivedCache`] by document, edition and profile. Only the newest entry of each document is kept.
pub(crate) type Cache = DashMap<(DocumentId, u64, u64), Arc<DerivedCache>>;

/// A snapshot of a document with everything known about it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub document: DocumentSnapshot,
    /// The unit of positions.
    pub encoding: Encoding,
    /// The client that asked.
    pub client: Arc<Client>,
    pub settings: Arc<Settings>,
    /// The newest measurement of the document, if any.
    pub measured: Option<DocumentProfile>,
    /// The estimated speedups of optimizations for this measurement, if known.
    pub what_ifs: Option<Arc<Study>>,
    /// The file's path without symbolic links, if it is a file.
    pub file: Option<PathBuf>,
    /// The findings of the projects around it.
    pub findings: Vec<Arc<FindingSet>>,
    derived: Arc<DerivedCache>,
}

impl View {
    pub(crate) fn new(
        document: DocumentSnapshot,
        client: Arc<Client>,
        settings: Arc<Settings>,
        measured: Option<DocumentProfile>,
        cache: &Cache,
    ) -> View {
        let generation = measured.as_ref().map_or(0, |measured| measured.generation);
        let key = (document.id.clone(), document.edition, generation);
        let known = cache.get(&key).map(|known| known.clone());
        let derived = known.unwrap_or_else(|| {
            cache.retain(|other, _| other.0 != document.id);
            let derived = Arc::<DerivedCache>::default();
            cache.insert(key, derived.clone());
            derived
        });
        View {
            encoding: client.encoding,
            document,
            client,
            settings,
            measured,
            what_ifs: None,
            file: None,
            findings: Vec::new(),
            derived,
        }
    }

    /// Returns the findings in the text that the settings show.
    pub(crate) fn findings(&self) -> Vec<PlacedFinding<'_>> {
        let (Some(minimum), Some(file)) = (self.settings.findings, self.file.as_deref()) else {
            return Vec::new();
        };
        in_text(&self.findings, file, &self.document.index, minimum)
    }

    /// Returns the profile, and its costs in the current text. The first caller computes them, and
    /// concurrent callers wait for it.
    pub(crate) fn costs(&self) -> Option<(&Profile, &CostMap)> {
        let measured = self.measured.as_ref()?;
        let profile = &*measured.profiled.profile;
        let build = || CostMap::build(profile, measured.file, &self.document.index);
        Some((profile, self.derived.costs.get_or_init(build)))
    }

    /// Returns whether the text is a training script, and where it trains.
    pub(crate) fn training(&self) -> &TrainingScript {
        let is_cell = self.file.as_deref().is_some_and(|file| notebook::cell_of(file).is_some());
        let read = if is_cell { training_cell } else { training_script };
        self.derived.training.get_or_init(|| read(&self.document.index))
    }

    /// Returns the line of the training loop: of the measured one, else as the text says.
    pub(crate) fn loop_line(&self) -> Option<u32> {
        let measured = self.costs().and_then(|(_, costs)| costs.training_loop.as_ref());
        measured.map(|training| training.first_line).or_else(|| self.training().loop_line)
    }

    /// Rejects an answer that was computed for an outdated text.
    ///
    /// # Errors
    /// If the text has changed since.
    pub(crate) fn checked<T>(&self, answer: T) -> Result<T, RequestError> {
        if self.document.is_current() { Ok(answer) } else { Err(RequestError::ContentModified) }
    }
}
