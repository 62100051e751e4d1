//! One document at one moment with everything that is known of it: what requests work on.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use ridgeline_analysis::optimize::study::Study;
use ridgeline_analysis::present::cost_map::CostMap;
use ridgeline_analysis::profile::{FileId, Profile};
use ridgeline_analysis::python::{TrainingScript, training_script};

use crate::documents::{DocumentId, DocumentSnapshot};
use crate::findings::{Kept, Placed, in_text};
use crate::lsp::position::Encoding;
use crate::pool::RequestError;
use crate::profiler::Profiled;
use crate::settings::Settings;
use crate::state::Client;

/// A profile and where this document is in it.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// The newest profile that has the document.
    pub profiled: Arc<Profiled>,
    /// The document's file in it.
    pub file: FileId,
    /// Which profile it is; numbers are not used twice.
    pub generation: u64,
}

/// What was worked out about one edition of a document and one profile. It is a cache: everything in
/// it can be worked out again.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    costs: OnceLock<CostMap>,
    training: OnceLock<TrainingScript>,
}

/// [`Derived`] by document, edition and profile. Of each document only the newest is kept.
pub(crate) type Cache = DashMap<(DocumentId, u64, u64), Arc<Derived>>;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The text.
    pub document: DocumentSnapshot,
    /// What positions count.
    pub encoding: Encoding,
    /// Whom the answer is for.
    pub client: Arc<Client>,
    /// What is to be shown.
    pub settings: Arc<Settings>,
    /// What was measured, where something was.
    pub measured: Option<Measured>,
    /// What optimizations would bring to what was measured, where that is known.
    pub what_ifs: Option<Arc<Study>>,
    /// The file's path without links, where it is a file.
    pub file: Option<PathBuf>,
    /// What was found in the projects around it.
    pub findings: Vec<Arc<Kept>>,
    derived: Arc<Derived>,
}

impl View {
    /// Puts a view together.
    pub(crate) fn new(
        document: DocumentSnapshot,
        client: Arc<Client>,
        settings: Arc<Settings>,
        measured: Option<Measured>,
        cache: &Cache,
    ) -> View {
        let generation = measured.as_ref().map_or(0, |measured| measured.generation);
        let key = (document.id.clone(), document.edition, generation);
        let known = cache.get(&key).map(|known| known.clone());
        let derived = known.unwrap_or_else(|| {
            cache.retain(|other, _| other.0 != document.id);
            let derived = Arc::<Derived>::default();
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

    /// The findings in the text that a person wants to see.
    pub(crate) fn findings(&self) -> Vec<Placed<'_>> {
        let (Some(minimum), Some(file)) = (self.settings.findings, self.file.as_deref()) else {
            return Vec::new();
        };
        in_text(&self.findings, file, &self.document.index, minimum)
    }

    /// The profile, and its costs on today's text. The first caller works them out, and those who
    /// come meanwhile wait for it.
    pub(crate) fn costs(&self) -> Option<(&Profile, &CostMap)> {
        let measured = self.measured.as_ref()?;
        let profile = &*measured.profiled.profile;
        let build = || CostMap::build(profile, measured.file, &self.document.index);
        Some((profile, self.derived.costs.get_or_init(build)))
    }

    /// Whether the text trains a model, and where.
    pub(crate) fn training(&self) -> &TrainingScript {
        self.derived.training.get_or_init(|| training_script(&self.document.index))
    }

    /// Refuses an answer that was worked out for a text of before.
    ///
    /// # Errors
    /// Where the text has changed since.
    pub(crate) fn checked<T>(&self, answer: T) -> Result<T, RequestError> {
        if self.document.is_current() { Ok(answer) } else { Err(RequestError::ContentModified) }
    }
}
