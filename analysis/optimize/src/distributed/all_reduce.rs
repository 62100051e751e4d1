//! What it costs to sum gradients over GPUs so that each has the sum: all-reduce.
//!
//! A ring moves the least bytes (Patarasuk and Yuan, JPDC 2009), a double binary tree needs the
//! fewest steps (Sanders, Speck and Träff, Parallel Computing 2009; NCCL since 2.4). NCCL takes the
//! quicker one by size, and so does [`time_ns`].

use super::links::Link;

/// GPUs and what connects them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// GPUs altogether.
    pub gpus: u32,
    /// GPUs that share a machine, at most.
    pub per_machine: u32,
    /// Between GPUs of a machine.
    pub link: Link,
    /// Between machines: what all GPUs of a machine have together.
    pub network: Link,
}

/// A launch of a collective, in nanoseconds: NCCL's own estimate for a ring, 8.4 µs (`baseLat` of its
/// `src/graph/tuning.cc`).
pub const BASE_NS: f64 = 8_400.0;

impl Topology {
    /// Machines that are needed.
    pub fn machines(&self) -> u32 {
        self.gpus.max(1).div_ceil(self.per_machine.max(1))
    }

    /// GPUs of one machine that take part.
    pub fn local(&self) -> u32 {
        self.gpus.max(1).min(self.per_machine.max(1))
    }

    /// The rate of the slowest stretch of a ring through all GPUs, in bytes per second.
    pub fn slowest(&self) -> f64 {
        self.slowest_link().bandwidth
    }

    /// The link that limits a ring through all GPUs.
    pub fn slowest_link(&self) -> &Link {
        let is_network = self.machines() > 1 && self.network.bandwidth < self.link.bandwidth;
        if is_network { &self.network } else { &self.link }
    }

    /// The same GPUs over a link, or where several machines are needed a network, of another rate.
    pub fn with_bandwidth(mut self, bandwidth: f64) -> Topology {
        if self.machines() > 1 {
            self.network.bandwidth = bandwidth;
        } else {
            self.link.bandwidth = bandwidth;
        }
        self
    }
}

/// Nanoseconds that so many bytes take at a rate in bytes per second.
pub fn transfer_ns(bytes: f64, bandwidth: f64) -> f64 {
    if bytes <= 0.0 { 0.0 } else { bytes / bandwidth.max(1.0) * 1e9 }
}

/// Nanoseconds of one all-reduce of so many bytes: by the ring or the tree, whichever is quicker. 0
/// on a single GPU.
pub fn time_ns(bytes: f64, topology: &Topology) -> f64 {
    if topology.gpus <= 1 {
        return 0.0;
    }
    ring_ns(bytes, topology).min(tree_ns(bytes, topology))
}

/// One ring through all GPUs, machine by machine: each byte is sent 2(n - 1)/n times by each.
pub fn ring_ns(bytes: f64, topology: &Topology) -> f64 {
    let gpus = f64::from(topology.gpus.max(1));
    let machines = f64::from(topology.machines());
    let over_network = if machines > 1.0 { machines } else { 0.0 };
    let steps = 2.0 * (gpus - 1.0);
    // A step takes as long as its slowest hop; that part of the steps crosses the network.
    let crossing = over_network / gpus;
    let latency_ns = steps
        * ((1.0 - crossing) * topology.link.latency_ns + crossing * topology.network.latency_ns);
    let moved = bytes * 2.0 * (gpus - 1.0) / gpus;
    BASE_NS + latency_ns + transfer_ns(moved, topology.slowest())
}

/// Chains within machines and two binary trees over them, each for half of the bytes: up and down
/// again.
pub fn tree_ns(bytes: f64, topology: &Topology) -> f64 {
    let within = 2.0 * (f64::from(topology.local()) - 1.0);
    let between = 2.0 * f64::from(topology.machines()).log2().ceil();
    let latency_ns = within * topology.link.latency_ns + between * topology.network.latency_ns;
    BASE_NS + latency_ns + transfer_ns(2.0 * bytes, topology.slowest())
}

/// Nanoseconds in which each of so many partners gets all parts of what was scattered over them, or
/// the sums of its own part: all-gather, reduce-scatter. `bytes` is the whole.
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
    fn one_gpu_sends_nothing() {
        assert_eq!(time_ns(1e9, &topology(1)), 0.0);
        assert_eq!(scatter_ns(1e9, 1, &topology(1).link), 0.0);
    }

    #[test]
    fn a_ring_sends_each_byte_twice_but_for_its_own_part() {
        // 2 * 7/8 of 1 GB at 100 GB/s, and 14 steps.
        check(ring_ns(1e9, &topology(8)), BASE_NS + 14_000.0 + 17.5e6);
        // Over two machines the network is what holds it up; 2 of 16 hops cross it.
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
                let quicker = topology(gpus).with_bandwidth(1e12);
                assert!(time_ns(bytes, &quicker) <= now);
            }
        }
    }
}
