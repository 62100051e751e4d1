//! Batch-size sweep: the cost of other batch sizes, and the edit that sets one.
//!
//! The sweep runs when the panel shows it or the user requests it. The program runs at other batch
//! sizes on fake tensors for its peak memory and, if the user requests it or the settings allow it,
//! for real. The batch size is changed in an overlay, so no file is touched. A save does not repeat
//! the sweep. A save or a keystroke stops it.

mod flow;
mod sources;

use std::path::PathBuf;
use std::sync::Arc;

use ridgeline_analysis::operators::op_list::OpList;
use ridgeline_analysis::predict::batch_size::{Capacity, Evidence};
use ridgeline_analysis::predict::gpu_batches::GpuBatches;
use ridgeline_analysis::present::panel::{BatchSizes, Site};
use ridgeline_analysis::python::batch_site::{BatchSite, batch_site};
use ridgeline_analysis::python::semantics::{Entry, Refusal};

use crate::documents::DocumentSnapshot;
use crate::profiler::{ProfileRequest, Profiled};
pub(crate) use sources::Sources;

/// The largest batch size that can be set, also for a provider.
pub(crate) const MAX_BATCH_SIZE: u64 = 16_777_216;

/// When other batch sizes are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SweepTrigger {
    /// When the panel shows the batch sizes.
    #[default]
    Automatic,
    /// On request.
    OnDemand,
}

/// What a sweep may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SweepEffort {
    /// Only estimates: in the sandbox, at low priority, and not while the machine is needed.
    #[default]
    Estimates,
    /// Also real runs if the last run was short and the settings allow it.
    ShortRuns,
    /// Also real runs, at the user's request.
    Runs,
}

/// Request for a batch-size sweep.
#[derive(Clone, Debug)]
pub(crate) struct SweepRequest {
    /// The profiled project.
    pub profile: ProfileRequest,
    /// The measurement to start from.
    pub measured: Arc<Profiled>,
    /// The user's limit on the memory of an iteration, in bytes.
    pub memory_limit: Option<u64>,
    /// What the sweep may run.
    pub effort: SweepEffort,
    /// Results so far.
    pub known: Option<Arc<SweepResults>>,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SweepEnd {
    /// It is complete, or it was stopped.
    Done,
    /// Another job needs the machine. The sweep continues later.
    MachineNeeded,
}

/// The results of a sweep so far.
#[derive(Clone, Debug)]
pub(crate) struct SweepResults {
    /// The project's root.
    pub root: PathBuf,
    /// The entry point, with the batch size that the run chose among several.
    pub entry: Entry,
    /// The batch-size site in the text that ran.
    pub site: Result<BatchSite, Refusal>,
    /// Measured and estimated costs.
    pub evidence: Evidence,
    /// The device's memory capacity.
    pub capacity: Option<Capacity>,
    /// A message for the user.
    pub message: Option<String>,
    /// The operators of the first estimate, until there is a second one.
    pub first_operators: Option<Arc<OpList>>,
    /// The batch sizes that GPUs need, after a second estimate.
    pub gpu_batches: Option<Arc<GpuBatches>>,
}

impl SweepResults {
    /// The batch-size site in the current text.
    ///
    /// # Errors
    /// The reason why it cannot be edited.
    pub(crate) fn current_site(&self, sources: &Sources) -> Result<BatchSite, Refusal> {
        match &self.site {
            Ok(_) => batch_site(sources, &self.entry),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    /// The panel's document. `is_measuring` is set while the sweep is running.
    pub(crate) fn for_panel(&self, sources: &Sources, is_measuring: bool) -> BatchSizes {
        let site = self.current_site(sources);
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

/// The batch-size sweep of a workspace.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The results, and the generation of the measurement they belong to.
    pub newest: Option<(u64, Arc<SweepResults>)>,
    /// The file whose change caused the last run. It identifies the measured project.
    pub about: Option<PathBuf>,
    /// A hash of the program that `newest` describes.
    key: u64,
    /// The generation of the measurement whose estimates were requested, so that each is requested
    /// once.
    estimated: Option<u64>,
}

/// The data for an edit or a code action.
#[derive(Clone, Debug)]
pub(crate) struct BatchView {
    /// The results of the sweep.
    pub results: Arc<SweepResults>,
    /// The open documents of the project, by path.
    pub open: Vec<(PathBuf, DocumentSnapshot)>,
}

impl BatchView {
    /// The current texts.
    pub(crate) fn sources(&self) -> Sources {
        let texts = self.open.iter().map(|(path, open)| (path.clone(), open.index.shared_text()));
        Sources::new(&self.results.root, texts)
    }
}
