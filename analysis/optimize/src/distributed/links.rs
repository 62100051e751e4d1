//! The links between the GPUs of one machine: a table by model with the source of each number, and
//! the uncertainty of the rate if the user did not specify it.
//!
//! Rates are nominal, in bytes per second and direction. A collective reaches a share of them.

use super::all_reduce::Topology;
use super::single_step;
use crate::facts::Facts;
use ridgeline_devices::device_spec::DeviceSpec;

/// A link as seen by a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bandwidth per direction in bytes per second.
    pub bandwidth: f64,
    /// Latency of a step in nanoseconds.
    pub latency_ns: f64,
    /// Uncertainty factor of the bandwidth before calibration ([`Link::rate_factor`]).
    pub spread: f64,
}

impl Link {
    /// Returns the uncertainty factor of the bandwidth in nine of ten cases.
    pub fn rate_factor(&self) -> f64 {
        self.spread.max(1.0).powf(single_step::SHIPPED.width)
    }
}

/// The path between the memories of GPUs in one machine. The same GPU model is sold in machines of
/// either kind, and the driver and environment variables (`NCCL_P2P_DISABLE`) also affect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Peer to peer: over NVLink, Infinity Fabric or a PCIe switch.
    Direct,
    /// Through a buffer in host memory, which one GPU writes and the next one reads.
    ThroughHost,
    /// Unknown which of the two.
    Unknown,
}

/// A kind of link with its nominal rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkKind {
    /// Display name, such as `NVLink 4`.
    pub name: &'static str,
    /// Nominal rate per direction over all lanes of one GPU, in bytes per second.
    pub nominal: f64,
    /// Whether it is PCIe, which several GPUs of a machine share.
    pub is_pcie: bool,
}

const fn nvlink(name: &'static str, nominal: f64) -> LinkKind {
    LinkKind { name, nominal, is_pcie: false }
}

const fn pcie(name: &'static str, nominal: f64) -> LinkKind {
    LinkKind { name, nominal, is_pcie: true }
}

/// PCIe with 16 lanes, from its specification (8, 16 and 32 GT/s, 128b/130b).
const PCIE_3: LinkKind = pcie("PCIe 3", 15.75e9);
const PCIE_4: LinkKind = pcie("PCIe 4", 31.5e9);
const PCIE_5: LinkKind = pcie("PCIe 5", 63.0e9);

/// Links by prefix of the device name. Datasheets give the sum of both directions; the values here
/// are half of it. Bridges between pairs of cards are omitted: users who have one specify the
/// bandwidth.
const BY_NAME: [(&str, LinkKind); 14] = [
    // Tesla P100, V100 datasheets: 160 and 300 GB/s.
    ("P100-SXM", nvlink("NVLink 1", 80e9)),
    ("V100-SXM", nvlink("NVLink 2", 150e9)),
    // A100, H100, H200 datasheets: 600 and 900 GB/s; H800: 400 GB/s.
    ("A100-SXM", nvlink("NVLink 3", 300e9)),
    ("H100-SXM", nvlink("NVLink 4", 450e9)),
    ("H800-SXM", nvlink("NVLink 4", 200e9)),
    ("H200-SXM", nvlink("NVLink 4", 450e9)),
    // GH200: one GPU per module, connected by the same NVLink 4.
    ("GH200", nvlink("NVLink 4", 450e9)),
    // Blackwell datasheets: 1,800 GB/s.
    ("B100", nvlink("NVLink 5", 900e9)),
    ("B200", nvlink("NVLink 5", 900e9)),
    ("GB200", nvlink("NVLink 5", 900e9)),
    ("B300", nvlink("NVLink 5", 900e9)),
    // AMD's datasheets: seven Infinity Fabric links of 128 GB/s to the others (MI300X). Eight of
    // 100 GB/s for a card of two dies (MI250X), half of them per die.
    ("MI300X", nvlink("Infinity Fabric", 448e9)),
    ("MI250X", nvlink("Infinity Fabric", 200e9)),
    // Without peer-to-peer over a connector.
    ("T4", PCIE_3),
];

/// Share of NVLink's nominal rate that a large all-reduce reaches. NCCL assumes 20 of 25 GB/s for
/// each link of a V100 and A100 (`src/graph/topo.h`: 20.0 for SM70 and SM80, 20.6 for SM90).
const NVLINK_EFFICIENCY: f64 = 0.8;
/// The same for PCIe: NCCL assumes 12 of 15.75 GB/s for 16 lanes of version 3.
const PCIE_EFFICIENCY: f64 = 12.0 / 15.75;
/// Latency of a ring step in nanoseconds, from NCCL's `hwLat` for NVLink, PCIe and a network
/// (`src/graph/tuning.cc`).
const NVLINK_STEP_NS: f64 = 3_400.0;
const PCIE_STEP_NS: f64 = 5_700.0;
const NETWORK_STEP_NS: f64 = 14_000.0;
/// Default network bandwidth in bytes per second: 100 Gbit/s, a current Ethernet or InfiniBand
/// card.
const DEFAULT_NETWORK: f64 = 12.5e9;

/// Returns the link between GPUs of this model within a machine.
pub fn of_device(device: &DeviceSpec) -> LinkKind {
    let found = BY_NAME.iter().find(|(name, _)| device.name.starts_with(name));
    found.map_or_else(|| pcie_of(device), |(_, known)| *known)
}

/// Returns the PCIe version by architecture: 4 since Ampere and CDNA 2, 5 since Hopper's
/// data-center cards and Blackwell. Ada Lovelace stayed at 4.
fn pcie_of(device: &DeviceSpec) -> LinkKind {
    match device.capability() {
        Some((major, _)) if major >= 9 => PCIE_5,
        Some((8, _)) => PCIE_4,
        Some(_) => PCIE_3,
        None if device.architecture.starts_with("gfx94") => PCIE_5,
        None if device.architecture.starts_with("gfx9") => PCIE_4,
        None => PCIE_3,
    }
}

/// Returns the bandwidth between the host and a GPU of this model, in bytes per second.
pub fn pcie_bandwidth(device: &DeviceSpec) -> f64 {
    pcie_of(device).nominal * PCIE_EFFICIENCY
}

/// Whether the driver disables peer-to-peer access for this model, so that GPUs exchange through
/// host memory: NVIDIA's GeForce cards since Turing.
fn is_without_peer_to_peer(device: &DeviceSpec) -> bool {
    const GEFORCE: [&str; 4] = ["RTX20", "RTX30", "RTX40", "RTX50"];
    GEFORCE.iter().any(|series| device.name.starts_with(series))
}

/// Returns the route between GPUs of this model, if the model determines it. For cards in PCIe
/// slots it depends: NCCL uses peer-to-peer below one PCIe switch (`PATH_PXB`, the default of
/// `ncclTopoCheckP2p` in its `src/graph/paths.cc`) and host memory elsewhere.
pub fn route_of(device: &DeviceSpec) -> Route {
    if !of_device(device).is_pcie {
        Route::Direct
    } else if is_without_peer_to_peer(device) {
        Route::ThroughHost
    } else {
        Route::Unknown
    }
}

/// The maximum number of GPUs for which each has its own PCIe slot and lanes of one socket. In
/// larger machines, pairs of GPUs share a switch, and rings cross sockets.
const MAX_UNSHARED_GPUS: u32 = 4;
/// Spread of the rates between machines with the same route, from the rates implied by the measured
/// steps of `fit_data_parallel`: 3.6 to 11 GB/s through the host in machines of up to 4 GPUs, 2.0
/// to 10 in machines of 8. Peer-to-peer over PCIe was measured on only one GPU model, and over
/// NVLink on none.
const SPREAD_THROUGH_HOST: f64 = 1.5;
const SPREAD_SHARED: f64 = 2.2;
const SPREAD_PCIE: f64 = 2.0;
const SPREAD_NVLINK: f64 = 1.5;
/// Spread of a rate that the user specified.
const SPREAD_GIVEN: f64 = 1.07;
/// Spread of the default network bandwidth.
const SPREAD_NETWORK: f64 = 1.5;

/// Returns the link of a collective within a machine. `gpus` is the number of GPUs, `through_host`
/// the rate through host memory in bytes per second.
///
/// If the route is unknown, the rate is the geometric mean of both routes. It is then off by the
/// same factor whichever route is used, and that factor is its spread.
pub fn link(device: &DeviceSpec, gpus: u32, route: Route, through_host: f64) -> Link {
    let known = of_device(device);
    let (reached, latency_ns) = if known.is_pcie {
        (PCIE_EFFICIENCY, PCIE_STEP_NS)
    } else {
        (NVLINK_EFFICIENCY, NVLINK_STEP_NS)
    };
    let direct = known.nominal * reached;
    let host_spread = if gpus > MAX_UNSHARED_GPUS { SPREAD_SHARED } else { SPREAD_THROUGH_HOST };
    match route {
        Route::Direct if known.is_pcie => {
            Link { bandwidth: direct, latency_ns, spread: SPREAD_PCIE }
        }
        Route::Direct => Link { bandwidth: direct, latency_ns, spread: SPREAD_NVLINK },
        Route::ThroughHost => {
            Link { bandwidth: through_host, latency_ns: PCIE_STEP_NS, spread: host_spread }
        }
        Route::Unknown => Link {
            bandwidth: (direct * through_host).sqrt(),
            latency_ns,
            spread: (direct / through_host).max(1.0).sqrt().max(host_spread),
        },
    }
}

/// Returns the requested cluster with defaults for missing values, and notes about those.
pub fn topology(facts: &Facts<'_>) -> (Topology, Vec<String>) {
    let cluster = facts.cluster;
    let known = of_device(facts.device);
    let mut notes = Vec::new();
    let valid = |rate: Option<f64>| rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let route = route_of(facts.device);
    let local = cluster.gpus.min(cluster.gpus_per_machine);
    let mut link = link(facts.device, local, route, single_step::SHIPPED.through_host);
    match valid(cluster.link) {
        Some(given) => (link.bandwidth, link.spread) = (given, SPREAD_GIVEN),
        None => notes.push(assumption(&link, known.name, route)),
    }
    let given_network = valid(cluster.network);
    let network = Link {
        bandwidth: given_network.unwrap_or(DEFAULT_NETWORK),
        latency_ns: NETWORK_STEP_NS,
        spread: if given_network.is_some() { SPREAD_GIVEN } else { SPREAD_NETWORK },
    };
    let topology = Topology {
        gpus: cluster.gpus.max(1),
        per_machine: cluster.gpus_per_machine.max(1),
        link,
        network,
    };
    if topology.machines() > 1 {
        notes.push(format!(
            "{} machines with {} GPUs each; network bandwidth {:.1} GB/s{}",
            topology.machines(),
            topology.local(),
            network.bandwidth / 1e9,
            if given_network.is_none() { " (assumed)" } else { "" }
        ));
    }
    (topology, notes)
}

/// Describes the assumed link within a machine.
fn assumption(link: &Link, name: &str, route: Route) -> String {
    let rate = link.bandwidth / 1e9;
    let (low, high) = (rate / link.rate_factor(), rate * link.rate_factor());
    let route = match route {
        Route::Direct => format!("over {name}"),
        Route::ThroughHost => format!("over {name} and host memory"),
        Route::Unknown => format!("over {name}; peer-to-peer or through host memory is unknown"),
    };
    format!(
        "assumed: GPUs of one machine exchange {rate:.0} GB/s ({low:.0} to {high:.0} GB/s) {route}"
    )
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
    fn links_depend_on_form_factor_and_generation() {
        check("NVIDIA H200", "NVLink 4");
        check("NVIDIA H100 PCIe", "PCIe 5");
        check("NVIDIA A100-SXM4-40GB", "NVLink 3");
        check("NVIDIA A100 80GB PCIe", "PCIe 4");
        check("NVIDIA GeForce RTX 4090", "PCIe 4");
        check("NVIDIA GeForce RTX 5090", "PCIe 5");
        check("NVIDIA B200", "NVLink 5");
        check("AMD Instinct MI300X", "Infinity Fabric");
    }

    fn link_of(device: &str, gpus: u32) -> Link {
        let device = DeviceTable::shipped().find(device).expect("a device of the table");
        link(device, gpus, route_of(device), 7e9)
    }

    #[test]
    fn unknown_routes_have_a_rate_between_both_and_a_spread_that_covers_them() {
        let device = DeviceTable::shipped().find("RTX6000Ada").expect("a device of the table");
        assert_eq!(route_of(device), Route::Unknown);
        let unknown = link_of("RTX6000Ada", 4);
        assert!((unknown.bandwidth / unknown.spread - 7e9).abs() < 1.0, "{unknown:?}");
        let direct = link(device, 4, Route::Direct, 7e9);
        assert!((unknown.bandwidth * unknown.spread - direct.bandwidth).abs() < 1.0);
        assert!(unknown.rate_factor() > unknown.spread);
    }

    #[test]
    fn the_route_depends_on_the_form_factor() {
        assert_eq!(link_of("H100-SXM5-80GB", 8).bandwidth, 360e9);
        assert_eq!(link_of("RTX4090", 2).bandwidth, 7e9);
        // More GPUs share switches and sockets.
        assert!(link_of("RTX4090", 8).spread > link_of("RTX4090", 4).spread);
    }
}
