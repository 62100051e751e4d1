//! What connects GPUs where nobody told: a table by model, with where each number comes from.
//!
//! Rates are in bytes per second and direction, as sold; a collective reaches a share of them.

use super::all_reduce::Topology;
use super::single_step;
use crate::facts::Facts;
use ridgeline_devices::device_spec::DeviceSpec;

/// A link as a collective uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second in each direction.
    pub bandwidth: f64,
    /// Nanoseconds of a step over it.
    pub latency_ns: f64,
}

/// A kind of link with its rate as sold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// As a person knows it: `NVLink 4`.
    pub name: &'static str,
    /// Bytes per second and direction, of all lanes of one GPU together.
    pub sold: f64,
    /// Whether it is PCIe, which several GPUs of a machine share.
    pub is_pcie: bool,
}

const fn nvlink(name: &'static str, sold: f64) -> Known {
    Known { name, sold, is_pcie: false }
}

const fn pcie(name: &'static str, sold: f64) -> Known {
    Known { name, sold, is_pcie: true }
}

/// PCIe with 16 lanes, from its specification (8, 16 and 32 GT/s, 128b/130b).
const PCIE_3: Known = pcie("PCIe 3", 15.75e9);
const PCIE_4: Known = pcie("PCIe 4", 31.5e9);
const PCIE_5: Known = pcie("PCIe 5", 63.0e9);

/// By the beginning of a device's name. Datasheets give both directions together; half of it stands
/// here. Bridges between pairs of cards are left out: who has one says so with the bandwidth.
const BY_NAME: [(&str, Known); 14] = [
    // Tesla P100, V100 datasheets: 160 and 300 GB/s.
    ("P100-SXM", nvlink("NVLink 1", 80e9)),
    ("V100-SXM", nvlink("NVLink 2", 150e9)),
    // A100, H100, H200 datasheets: 600 and 900 GB/s; H800: 400 GB/s.
    ("A100-SXM", nvlink("NVLink 3", 300e9)),
    ("H100-SXM", nvlink("NVLink 4", 450e9)),
    ("H800-SXM", nvlink("NVLink 4", 200e9)),
    ("H200-SXM", nvlink("NVLink 4", 450e9)),
    // GH200: one GPU a module, joined over the same NVLink 4.
    ("GH200", nvlink("NVLink 4", 450e9)),
    // Blackwell datasheets: 1,800 GB/s.
    ("B100", nvlink("NVLink 5", 900e9)),
    ("B200", nvlink("NVLink 5", 900e9)),
    ("GB200", nvlink("NVLink 5", 900e9)),
    ("B300", nvlink("NVLink 5", 900e9)),
    // AMD's datasheets: seven Infinity Fabric links of 128 GB/s to the others (MI300X); eight of
    // 100 GB/s for a card of two dies (MI250X), of which a die has half.
    ("MI300X", nvlink("Infinity Fabric", 448e9)),
    ("MI250X", nvlink("Infinity Fabric", 200e9)),
    // Without peer-to-peer over its connector.
    ("T4", PCIE_3),
];

/// The share of NVLink's rate as sold that a large all-reduce reaches. NCCL counts on 20 of 25 GB/s
/// for each link of a V100 and A100 (`src/graph/topo.h`: 20.0 for SM70 and SM80, 20.6 for SM90).
const REACHED: f64 = 0.8;
/// The same of PCIe: NCCL counts on 12 of 15.75 GB/s for 16 lanes of version 3.
const REACHED_PCIE: f64 = 12.0 / 15.75;
/// A step of a ring, from NCCL's `hwLat` for NVLink, PCIe and a network (`src/graph/tuning.cc`).
const NVLINK_STEP_NS: f64 = 3_400.0;
const PCIE_STEP_NS: f64 = 5_700.0;
const NETWORK_STEP_NS: f64 = 14_000.0;
/// Between machines where nobody told: 100 Gbit/s, an Ethernet or InfiniBand card of today.
const NETWORK: f64 = 12.5e9;

/// What connects GPUs of this model within a machine, as sold.
pub fn of_device(device: &DeviceSpec) -> Known {
    let found = BY_NAME.iter().find(|(name, _)| device.name.starts_with(name));
    found.map_or_else(|| pcie_of(device), |(_, known)| *known)
}

/// PCIe by architecture: version 4 since Ampere and CDNA 2, 5 since Hopper's data-centre cards and
/// Blackwell; Ada Lovelace stayed with 4.
fn pcie_of(device: &DeviceSpec) -> Known {
    match device.capability() {
        Some((major, _)) if major >= 9 => PCIE_5,
        Some((8, _)) => PCIE_4,
        Some(_) => PCIE_3,
        None if device.architecture.starts_with("gfx94") => PCIE_5,
        None if device.architecture.starts_with("gfx9") => PCIE_4,
        None => PCIE_3,
    }
}

/// Bytes per second between the host and a GPU of this model.
pub fn pcie_bandwidth(device: &DeviceSpec) -> f64 {
    pcie_of(device).sold * REACHED_PCIE
}

/// Whether the driver keeps GPUs of this model from reading each other's memory, so that they exchange
/// through the host's: NVIDIA's GeForce cards since Turing.
fn goes_through_host(device: &DeviceSpec) -> bool {
    const GEFORCE: [&str; 4] = ["RTX20", "RTX30", "RTX40", "RTX50"];
    GEFORCE.iter().any(|series| device.name.starts_with(series))
}

/// What a collective has between GPUs of this model within a machine, where nobody told.
pub fn default_link(device: &DeviceSpec) -> Link {
    let known = of_device(device);
    if !known.is_pcie {
        return Link { bandwidth: known.sold * REACHED, latency_ns: NVLINK_STEP_NS };
    }
    let bandwidth = if goes_through_host(device) {
        single_step::SHIPPED.through_host
    } else {
        known.sold * REACHED_PCIE
    };
    Link { bandwidth, latency_ns: PCIE_STEP_NS }
}

/// The cluster that was asked for, with what nobody told filled in; and what that was, in words.
pub fn topology(facts: &Facts<'_>) -> (Topology, Vec<String>) {
    let cluster = facts.cluster;
    let known = of_device(facts.device);
    let mut notes = Vec::new();
    let sensible = |rate: Option<f64>| rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let mut link = default_link(facts.device);
    match sensible(cluster.link) {
        Some(told) => link.bandwidth = told,
        None => notes.push(format!(
            "assumed: GPUs in one machine communicate at {:.0} GB/s over {}{}",
            link.bandwidth / 1e9,
            known.name,
            if goes_through_host(facts.device) { " and host memory" } else { "" }
        )),
    }
    let network = sensible(cluster.network).unwrap_or(NETWORK);
    let topology = Topology {
        gpus: cluster.gpus.max(1),
        per_machine: cluster.gpus_per_machine.max(1),
        link,
        network: Link { bandwidth: network, latency_ns: NETWORK_STEP_NS },
    };
    if topology.machines() > 1 {
        notes.push(format!(
            "{} machines with {} GPUs each; network bandwidth {:.1} GB/s{}",
            topology.machines(),
            topology.local(),
            network / 1e9,
            if sensible(cluster.network).is_none() { " (assumed)" } else { "" }
        ));
    }
    (topology, notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::device_table::DeviceTable;

    #[track_caller]
    fn check(device: &str, expected: &str) {
        let device = DeviceTable::shipped().find(device).expect("a device of the table");
        assert_eq!(of_device(device).name, expected);
    }

    #[test]
    fn links_follow_form_and_generation() {
        check("NVIDIA H200", "NVLink 4");
        check("NVIDIA H100 PCIe", "PCIe 5");
        check("NVIDIA A100-SXM4-40GB", "NVLink 3");
        check("NVIDIA A100 80GB PCIe", "PCIe 4");
        check("NVIDIA GeForce RTX 4090", "PCIe 4");
        check("NVIDIA GeForce RTX 5090", "PCIe 5");
        check("NVIDIA B200", "NVLink 5");
        check("AMD Instinct MI300X", "Infinity Fabric");
    }
}
