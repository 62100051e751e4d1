//! The cost of all-reduce: summing gradients over GPUs so that each has the sum.
//!
//! A ring moves the fewest bytes (Patarasuk and Yuan, JPDC 2009), a double binary tree needs the
//! fewest steps (Sanders, Speck and Träff, Parallel Computing 2009; NCCL since 2.4). NCCL chooses
//! the faster one by size, and so does [`time_ns`].

use super::links::Link;

/// GPUs and the links between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// Total number of GPUs.
    pub gpus: u32,
    /// Maximum number of GPUs per machine.
    pub per_machine: u32,
    /// The link between GPUs of a machine.
    pub link: Link,
    /// The network between machines, shared by all GPUs of a machine.
    pub network: Link,
}

/// Launch time of a collective in nanoseconds: NCCL's own estimate for a ring, 8.4 µs (`baseLat` in
/// its `src/graph/tuning.cc`).
pub const BASE_NS: f64 = 8_400.0;

impl Topology {
    /// Returns the number of machines needed.
    pub fn machines(&self) -> u32 {
        self.gpus.max(1).div_ceil(self.per_machine.max(1))
    }

    /// Returns the number of participating GPUs per machine.
    pub fn local(&self) -> u32 {
        self.gpus.max(1).min(self.per_machine.max(1))
    }

    /// Returns the bandwidth of the slowest hop of a ring through all GPUs, in bytes per second.
    pub fn slowest(&self) -> f64 {
        self.slowest_link().bandwidth
    }

    /// Returns the link that limits a ring through all GPUs.
    pub fn slowest_link(&self) -> &Link {
        let is_network = self.machines() > 1 && self.network.bandwidth < self.link.bandwidth;
        if is_network { &self.network } else { &self.link }
    }

    /// Returns the topology with another bandwidth: of the network if there are several machines,
    /// otherwise of the link.
    pub fn with_bandwidth(mut self, bandwidth: f64) -> Topology {
        if self.machines() > 1 {
            self.network.bandwidth = bandwidth;
        } else {
            self.link.bandwidth = bandwidth;
        }
        self
    }
}

/// Returns the transfer time of bytes in nanoseconds, with the bandwidth in bytes per second.
pub fn transfer_ns(bytes: f64, bandwidth: f64) -> f64 {
    if bytes <= 0.0 { 0.0 } else { bytes / bandwidth.max(1.0) * 1e9 }
}

/// Returns the time of one all-reduce in nanoseconds, with the ring or the tree, whichever is
/// faster. 0 on a single GPU.
pub fn time_ns(bytes: f64, topology: &Topology) -> f64 {
    if topology.gpus <= 1 {
        return 0.0;
    }
    ring_ns(bytes, topology).min(tree_ns(bytes, topology))
}

/// Returns the time of a ring through all GPUs, machine by machine, in nanoseconds. Each GPU sends
/// each byte 2(n - 1)/n times.
pub fn ring_ns(bytes: f64, topology: &Topology) -> f64 {
    let gpus = f64::from(topology.gpus.max(1));
    let machines = f64::from(topology.machines());
    let over_network = if machines > 1.0 { machines } else { 0.0 };
    let steps = 2.0 * (gpus - 1.0);
    // A step takes as long as its slowest hop. This share of the steps crosses the network.
    let crossing = over_network / gpus;
    let latency_ns = steps
        * ((1.0 - crossing) * topology.link.latency_ns + crossing * topology.network.latency_ns);
    let moved = bytes * 2.0 * (gpus - 1.0) / gpus;
    BASE_NS + latency_ns + transfer_ns(moved, topology.slowest())
}

/// Returns the time of chains within machines and two binary trees between them, each for half of
/// the bytes, up and down, in nanoseconds.
pub fn tree_ns(bytes: f64, topology: &Topology) -> f64 {
    let within = 2.0 * (f64::from(topology.local()) - 1.0);
    let between = 2.0 * f64::from(topology.machines()).log2().ceil();
    let latency_ns = within * topology.link.latency_ns + between * topology.network.latency_ns;
    BASE_NS + latency_ns + transfer_ns(2.0 * bytes, topology.slowest())
}

/// Returns the time of an all-gather or reduce-scatter of `bytes` in total among `partners`, in
/// nanoseconds.
pub fn scatter_ns(bytes: f64, partners: u32, link: &Link) -> f64 {
    if partners <= 1 {
        return 0.0;
    }
    let partners = f64::from(partners);
    let moved = bytes * (partners - 1.0) / partners;
    BASE_NS + (partners - 1.0) * link.latency_ns + transfer_ns(moved, link.bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(gpus: u32) -> Topology {
        Topology {
            gpus,
            per_machine: 8,
            link: Link { bandwidth: 1e11, latency_ns: 1_000.0, spread: 1.0 },
            network: Link { bandwidth: 1e10, latency_ns: 10_000.0, spread: 1.0 },
        }
    }

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn a_single_gpu_sends_nothing() {
        assert_eq!(time_ns(1e9, &topology(1)), 0.0);
        assert_eq!(scatter_ns(1e9, 1, &topology(1).link), 0.0);
    }

    #[test]
    fn a_ring_sends_each_byte_twice_except_its_own_share() {
        // 2 * 7/8 of 1 GB at 100 GB/s, and 14 steps.
        check(ring_ns(1e9, &topology(8)), BASE_NS + 14_000.0 + 17.5e6);
        // Over two machines the network is the bottleneck; 2 of 16 hops cross it.
        let latency_ns = 30.0 * (14.0 * 1_000.0 + 2.0 * 10_000.0) / 16.0;
        check(ring_ns(1e9, &topology(16)), BASE_NS + latency_ns + 187.5e6);
    }

    #[test]
    fn a_tree_needs_fewer_steps_over_many_machines() {
        check(tree_ns(1e9, &topology(64)), BASE_NS + 14_000.0 + 60_000.0 + 200e6);
        assert!(tree_ns(1e3, &topology(64)) < ring_ns(1e3, &topology(64)));
        assert!(ring_ns(1e9, &topology(8)) < tree_ns(1e9, &topology(8)));
    }

    #[test]
    fn more_gpus_are_never_cheaper_and_more_bandwidth_is_never_slower() {
        for bytes in [1.0, 1e4, 1e6, 2.5e7, 1e9] {
            let mut before = 0.0;
            for gpus in 1..100 {
                let now = time_ns(bytes, &topology(gpus));
                assert!(now >= before, "{gpus} GPUs, {bytes} bytes");
                before = now;
                let faster = topology(gpus).with_bandwidth(1e12);
                assert!(time_ns(bytes, &faster) <= now);
            }
        }
    }
}
