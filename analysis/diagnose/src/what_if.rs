//! What-ifs for rules: what an optimization saves in the recorded iteration.

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

/// Optimizations that only need the recording, so they also work for a GPU that is not in the
/// device table.
const DEVICE_INDEPENDENT: [&str; 2] = ["loader-workers", "cuda-graphs"];
/// Counted without what the device decides: findings about launches do not include the gains of compilation.
const LAUNCHES: &str = "cuda-graphs";

/// A GPU that is not in the device table.
static UNKNOWN_GPU: LazyLock<DeviceSpec> = LazyLock::new(|| DeviceSpec {
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

/// The estimated savings of an optimization.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Savings {
    /// Time saved per iteration, in nanoseconds; negative if the iteration gets longer.
    pub time_ns: f64,
    /// Peak memory saved, in bytes; `None` if it is unknown.
    pub bytes: Option<f64>,
    /// The lines that it changes, the most important one first.
    pub lines: Vec<(FileId, u32)>,
}

impl<'a> Evidence<'a> {
    /// The program's precision settings for matrix multiplications and convolutions.
    pub(crate) fn options(&self) -> Options {
        let settings = self.manifest().map(|manifest| &manifest.settings);
        let precision = settings.and_then(|settings| settings.matmul_precision.as_deref());
        let convolutions = settings.and_then(|settings| settings.cudnn_tf32);
        Options {
            tf32_matmuls: precision.is_some_and(|precision| precision != "highest"),
            tf32_convolutions: convolutions.unwrap_or(Options::default().tf32_convolutions),
        }
    }

    /// The device that ran the iteration, or `None` if it is not in the device table.
    pub(crate) fn device(&self) -> Option<&'a DeviceSpec> {
        self.run.device.as_ref().ok()
    }

    /// Everything known in addition to the graph, or `None` if the device is unknown.
    pub(crate) fn facts(&self) -> Option<Facts<'a>> {
        Some(self.facts_on(self.device()?))
    }

    /// Like [`Evidence::facts`], but also with an unknown GPU if the optimization does not need the
    /// device.
    pub(crate) fn facts_for(&self, optimization: &str) -> Option<Facts<'a>> {
        if optimization == LAUNCHES {
            return Some(self.facts_on(&UNKNOWN_GPU));
        }
        let unknown = DEVICE_INDEPENDENT.contains(&optimization).then(|| &*UNKNOWN_GPU);
        Some(self.facts_on(self.device().or(unknown)?))
    }

    fn facts_on(&self, device: &'a DeviceSpec) -> Facts<'a> {
        Facts {
            profile: &self.run.profile,
            manifest: self.run.manifest.as_ref(),
            device,
            options: self.options(),
            probes: self.probes,
            cluster: Cluster::default(),
        }
    }

    /// What an optimization would most likely save. Returns `None` if it does not apply, or if the
    /// simulation does not reproduce the iteration well enough. This changes and simulates the
    /// whole graph: call it only for what can matter.
    pub(crate) fn what_if(&self, name: &str) -> Option<Savings> {
        let recorded = &self.run.recorded;
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
        Some(Savings {
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
