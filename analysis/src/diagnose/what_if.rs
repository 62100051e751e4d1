//! What a what-if brings to the iteration that rules look at.

use std::sync::LazyLock;

use super::evidence::Evidence;
use crate::predict::op_cost::Options;
use crate::profile::FileId;
use crate::whatif::facts::{Cluster, Facts, Probes};
use crate::whatif::memory;
use crate::whatif::optimization::Bound;
use crate::whatif::simulate;
use crate::whatif::study::optimization;

static NO_PROBES: LazyLock<Probes> = LazyLock::new(Probes::default);

/// What an optimization would save.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prospect {
    /// Nanoseconds of an iteration; below 0 where it takes longer.
    pub time_ns: f64,
    /// Bytes of the peak; nothing where that is not known.
    pub bytes: Option<f64>,
    /// The lines that it is about, the most important one first.
    pub lines: Vec<(FileId, u32)>,
}

impl<'a> Evidence<'a> {
    /// What is known besides the graph.
    pub fn facts(&self) -> Facts<'a> {
        let settings = self.manifest().map(|manifest| &manifest.settings);
        let precision = settings.and_then(|settings| settings.matmul_precision.as_deref());
        let convolutions = settings.and_then(|settings| settings.cudnn_tf32);
        let options = Options {
            tf32_products: precision.is_some_and(|precision| precision != "highest"),
            tf32_convolutions: convolutions.unwrap_or(Options::default().tf32_convolutions),
        };
        Facts {
            profile: &self.subject.profile,
            manifest: self.subject.manifest.as_ref(),
            device: &self.subject.device,
            options,
            probes: &NO_PROBES,
            cluster: Cluster::default(),
        }
    }

    /// What an optimization would most likely save. Nothing where it does not apply, or where the
    /// iteration cannot be replayed well enough to say. It changes and runs the whole graph: ask for
    /// what can matter alone.
    pub fn what_if(&self, name: &str) -> Option<Prospect> {
        let recorded = &self.subject.recorded;
        if !self.is_replayed() {
            return None;
        }
        let mut changed = recorded.graph.clone();
        let touched = optimization(name)?.apply(&mut changed, &self.facts(), Bound::Likely).ok()?;
        let then = simulate::steady(&changed).ok()?;
        let peaks = memory::peak(&recorded.graph, &recorded.schedule)
            .zip(memory::peak(&changed, &then))
            .filter(|_| !touched.memory_is_unknown);
        Some(Prospect {
            time_ns: recorded.schedule.iteration_ns - then.iteration_ns,
            bytes: peaks.map(|(now, then)| now - then),
            lines: touched.lines,
        })
    }

    /// A time as a share of the iteration.
    pub fn share(&self, time_ns: f64) -> f64 {
        let iteration_ns = self.iteration_ns();
        if iteration_ns > 0.0 { time_ns / iteration_ns } else { 0.0 }
    }
}
