//! A processor as a device: what it reaches, as far as a measurement tells.
//!
//! There is no table of processors. What decides how a line's time changes is how arithmetic and
//! memory weigh against each other, and the measurement's own operators say that: the fastest
//! product and the fastest pass over memory are this machine's ceilings, threads and all.

use crate::device_spec::{Ceilings, DeviceKind, DeviceSpec, Rates};
use ridgeline_profile::{OperatorCost, Profile};

/// Operations per second of a core where nothing was measured: two vectors of eight numbers at 3 GHz
/// and half of that in practice, as a product reaches on servers' cores in the cloud.
const FLOPS_OF_A_CORE: f64 = 48e9;
/// Bytes per second of a core: a stream over memory on the same.
const BANDWIDTH_OF_A_CORE: f64 = 8e9;

/// Operators below this are told by their call, not by what they do.
const LEAST_NS: f64 = 20_000.0;

/// The processor that a profile was measured on, or one of so many cores that nothing was measured on.
pub fn processor(profile: Option<&Profile>, cores: u32) -> DeviceSpec {
    let lines = profile.into_iter().flat_map(|profile| profile.lines.iter().flatten());
    let operators: Vec<&OperatorCost> = lines.flat_map(|line| &line.operators).collect();
    let fastest = |of: &dyn Fn(&OperatorCost) -> Option<f64>| {
        let long = operators.iter().filter(|one| one.time_ns > LEAST_NS * one.calls.max(1.0));
        let rates = long.filter_map(|one| Some(of(one)? / (one.time_ns / 1e9)));
        rates.filter(|rate| rate.is_finite()).fold(0.0, f64::max)
    };
    let is_product = |one: &OperatorCost| Some(one.flops? > 8.0 * one.bytes?);
    let product = |one: &OperatorCost| one.flops.filter(|_| is_product(one) == Some(true));
    let stream = |one: &OperatorCost| one.bytes.filter(|_| is_product(one) == Some(false));
    let cores = f64::from(cores.max(1));
    let measured = |rate: f64, otherwise: f64| if rate > 0.0 { rate } else { otherwise };
    let fp32 = measured(fastest(&product), FLOPS_OF_A_CORE * cores);
    let bandwidth = measured(fastest(&stream), BANDWIDTH_OF_A_CORE * cores.min(4.0));
    let name = profile.map(|profile| profile.device.name.clone());
    DeviceSpec {
        name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| "this CPU".to_owned()),
        aliases: Vec::new(),
        kind: DeviceKind::Cpu,
        vendor: String::new(),
        architecture: String::new(),
        multiprocessors: cores as u32,
        base_clock_hz: None,
        boost_clock_hz: None,
        memory_bytes: profile.and_then(|it| it.memory.capacity_bytes).unwrap_or_default(),
        l2_bytes: None,
        bandwidth,
        peaks: Rates { fp32: Some(fp32), ..Rates::default() },
        tdp_w: None,
        price: None,
        ceilings: Some(Ceilings {
            bandwidth: Some(bandwidth),
            gemm: Rates { fp32: Some(fp32), ..Rates::default() },
            ..Ceilings::default()
        }),
        source: "measured operators".to_owned(),
        verified_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_profile::LineCost;

    #[test]
    fn the_fastest_operators_are_the_ceilings() {
        let operator = |flops: f64, bytes: f64, time_ns: f64| OperatorCost {
            calls: 1.0,
            time_ns,
            flops: Some(flops),
            bytes: Some(bytes),
            ..OperatorCost::default()
        };
        let operators = vec![
            operator(1e9, 1e6, 10e6),
            operator(2e9, 1e6, 10e6),
            operator(1e6, 1e8, 10e6),
            // A call so short tells of the clock.
            operator(1e9, 1e9, 10.0),
        ];
        let line = LineCost { operators, ..LineCost::default() };
        let profile = Profile { lines: vec![vec![line]], ..Profile::default() };
        let found = processor(Some(&profile), 2);
        assert_eq!(found.peaks.fp32, Some(2e11));
        assert_eq!(found.bandwidth, 1e10);
        assert_eq!(processor(None, 2).peaks.fp32, Some(2.0 * FLOPS_OF_A_CORE));
    }
}
