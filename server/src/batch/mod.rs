//! Other batch sizes: what they would cost, and the edit that sets one.
//!
//! When the panel shows them, or the person asks, the program runs at other batch sizes: under fake
//! tensors for the peak of its memory, and, where its person asks or has set so, for real. A save does not
//! run it again. The text that it runs has another number in it; no file is touched. A save or a key ends
//! it.

mod flow;
mod sources;

use std::path::PathBuf;
use std::sync::Arc;

use ridgeline_analysis::predict::batch_size::{Capacity, Evidence};
use ridgeline_analysis::present::panel::{BatchSizes, Site};
use ridgeline_analysis::python::batch_site::{BatchSite, batch_site};
use ridgeline_analysis::python::semantics::{Entry, Refusal};

use crate::documents::DocumentSnapshot;
use crate::profiler::{ProfileRequest, Profiled};
pub(crate) use sources::Sources;

/// The largest batch size that can be set: what a provider can be asked for.
pub(crate) const MOST: u64 = 16_777_216;

/// When other batch sizes are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Explore {
    /// When the panel shows what they cost.
    #[default]
    Automatic,
    /// When the person asks.
    OnDemand,
}

/// What may be done to find out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// Estimates: in the sandbox, at low priority, and not while the machine is needed.
    #[default]
    Estimates,
    /// These, and runs where the last run was short; where the settings say so.
    ShortRuns,
    /// Runs as well: the person asked for them.
    Runs,
}

/// What to find out.
#[derive(Clone, Debug)]
pub(crate) struct ExploreRequest {
    /// Which project, as it was measured.
    pub profile: ProfileRequest,
    /// The measurement.
    pub measured: Arc<Profiled>,
    /// A limit on the memory of an iteration, in bytes, which the person set.
    pub memory_limit: Option<u64>,
    /// What may be done.
    pub effort: Effort,
    /// What is known already.
    pub known: Option<Arc<Exploration>>,
}

/// Why an exploration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explored {
    /// There is no more to find out, or it was stopped.
    Done,
    /// Something else needs the machine. It goes on later.
    MachineNeeded,
}

/// What was found out, as far as it got.
#[derive(Clone, Debug)]
pub(crate) struct Exploration {
    /// The project's root.
    pub root: PathBuf,
    /// What runs, with the choice among several numbers that the run made.
    pub entry: Entry,
    /// Where the batch size was written in the text that ran.
    pub site: Result<BatchSite, Refusal>,
    /// Runs and estimates.
    pub evidence: Evidence,
    /// What the device holds.
    pub capacity: Option<Capacity>,
    /// What a person should know.
    pub message: Option<String>,
}

impl Exploration {
    /// Where the batch size is written in today's text.
    ///
    /// # Errors
    /// Why it cannot be edited.
    pub(crate) fn site_today(&self, sources: &Sources) -> Result<BatchSite, Refusal> {
        match &self.site {
            Ok(_) => batch_site(sources, &self.entry),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    /// What the panel shows of it; `is_measuring` where more is being found out.
    pub(crate) fn for_panel(&self, sources: &Sources, is_measuring: bool) -> BatchSizes {
        let site = self.site_today(sources);
        let ran = self.evidence.runs.first().map_or(0, |run| run.batch);
        BatchSizes {
            is_measuring,
            message: self.message.clone(),
            current: site.as_ref().map_or(ran, |site| site.value),
            refusal: site.as_ref().err().map(|refusal| refusal.message.clone()),
            site: site.ok().map(|site| Site {
                text: site.text,
                file: site.file,
                line: site.line,
                note: site.note,
            }),
            evidence: self.evidence.clone(),
            capacity: self.capacity,
        }
    }
}

/// What is known of other batch sizes in a workspace.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// What was found out, and the generation of the measurement that it is about.
    pub newest: Option<(u64, Arc<Exploration>)>,
    /// The file whose change was the reason of the last run: it says which project was measured.
    pub about: Option<PathBuf>,
    /// Stands for the program that `newest` is about.
    key: u64,
    /// The measurement whose estimates were asked for, so that a page asks once.
    estimated: Option<u64>,
}

/// What an edit or a code action needs.
#[derive(Clone, Debug)]
pub(crate) struct BatchView {
    /// What was found out.
    pub exploration: Arc<Exploration>,
    /// The open texts of the project, by path.
    pub open: Vec<(PathBuf, DocumentSnapshot)>,
}

impl BatchView {
    /// Today's texts.
    pub(crate) fn sources(&self) -> Sources {
        let texts = self.open.iter().map(|(path, open)| (path.clone(), open.index.shared_text()));
        Sources::new(&self.exploration.root, texts)
    }
}
