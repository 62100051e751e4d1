//! What a what-if brings to the iteration that rules look at.

use std::sync::LazyLock;

use super::evidence::Evidence;
use ridgeline_devices::device_spec::{DeviceKind, DeviceSpec, Rates};
use ridgeline_graph::memory;
use ridgeline_graph::simulate;
use ridgeline_operators::op_cost::Options;
use ridgeline_optimize::facts::{Cluster, Facts};
use ridgeline_optimize::optimization::Bound;
use ridgeline_optimize::study::optimization;
use ridgeline_profile::FileId;

/// Optimizations that reckon with what was recorded alone, so that they can be asked of a GPU that is in
/// no table.
const OF_THE_RECORDING: [&str; 2] = ["loader-workers", "cuda-graphs"];

/// Such a GPU.
static UNKNOWN: LazyLock<DeviceSpec> = LazyLock::new(|| DeviceSpec {
    name: String::new(),
    aliases: Vec::new(),
    kind: DeviceKind::Gpu,
    vendor: String::new(),
    architecture: String::new(),
    multiprocessors: 0,
    base_clock_hz: None,
    boost_clock_hz: None,
    memory_bytes: 0,
    l2_bytes: None,
    bandwidth: 0.0,
    peaks: Rates::default(),
    tdp_w: None,
    price: None,
    ceilings: None,
    source: String::new(),
    verified_by: None,
});

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
    /// How the program has products computed.
    pub(crate) fn options(&self) -> Options {
        let settings = self.manifest().map(|manifest| &manifest.settings);
        let precision = settings.and_then(|settings| settings.matmul_precision.as_deref());
        let convolutions = settings.and_then(|settings| settings.cudnn_tf32);
        Options {
            tf32_products: precision.is_some_and(|precision| precision != "highest"),
            tf32_convolutions: convolutions.unwrap_or(Options::default().tf32_convolutions),
        }
    }

    /// What is known of what ran it; nothing of a GPU that is in no table.
    pub(crate) fn device(&self) -> Option<&'a DeviceSpec> {
        self.subject.device.as_ref().ok()
    }

    /// What is known besides the graph; nothing where the GPU is not known.
    pub(crate) fn facts(&self) -> Option<Facts<'a>> {
        Some(self.facts_on(self.device()?))
    }

    /// The same, as far as an optimization needs it.
    pub(crate) fn facts_for(&self, optimization: &str) -> Option<Facts<'a>> {
        let unknown = OF_THE_RECORDING.contains(&optimization).then(|| &*UNKNOWN);
        Some(self.facts_on(self.device().or(unknown)?))
    }

    fn facts_on(&self, device: &'a DeviceSpec) -> Facts<'a> {
        Facts {
            profile: &self.subject.profile,
            manifest: self.subject.manifest.as_ref(),
            device,
            options: self.options(),
            probes: self.probes,
            cluster: Cluster::default(),
        }
    }

    /// What an optimization would most likely save. Nothing where it does not apply, or where the
    /// iteration cannot be replayed well enough to say. It changes and runs the whole graph: ask for
    /// what can matter alone.
    pub(crate) fn what_if(&self, name: &str) -> Option<Prospect> {
        let recorded = &self.subject.recorded;
        if !self.is_replayed() {
            return None;
        }
        let facts = self.facts_for(name)?;
        let mut changed = recorded.graph.clone();
        let touched = optimization(name)?.apply(&mut changed, &facts, Bound::Likely).ok()?;
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
    pub(crate) fn share(&self, time_ns: f64) -> f64 {
        let iteration_ns = self.iteration_ns();
        if iteration_ns > 0.0 { time_ns / iteration_ns } else { 0.0 }
    }
}
