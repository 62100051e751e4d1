//! A CPU as a device, with rates from a measurement if there is one.
//!
//! There is no table of CPUs. How a line's time changes depends on the balance of arithmetic and
//! memory bandwidth, and the measured operators show it: the fastest GEMM and the fastest
//! memory-bound operator give this machine's rates, with all of its threads.

use crate::device_spec::{Ceilings, DeviceKind, DeviceSpec, Rates};
use ridgeline_profile::{OperatorCost, Profile};

/// Operations per second and core if nothing was measured: two vectors of eight numbers per cycle
/// at 3 GHz, and half of that in practice, as GEMMs reach on cloud server cores.
const FLOPS_PER_CORE: f64 = 48e9;
/// Bytes per second and core if nothing was measured: streaming through memory on the same cores.
const BANDWIDTH_PER_CORE: f64 = 8e9;

/// The minimum nanoseconds per call. Below it, call overhead dominates.
const MIN_CALL_NS: f64 = 20_000.0;

/// Returns the CPU that a profile was measured on, or for `None`, a CPU with this number of cores
/// and default rates.
pub fn cpu(profile: Option<&Profile>, cores: u32) -> DeviceSpec {
    let lines = profile.into_iter().flat_map(|profile| profile.lines.iter().flatten());
    let operators: Vec<&OperatorCost> = lines.flat_map(|line| &line.operators).collect();
    let fastest = |amount: &dyn Fn(&OperatorCost) -> Option<f64>| {
        let long = operators.iter().filter(|one| one.time_ns > MIN_CALL_NS * one.calls.max(1.0));
        let rates = long.filter_map(|one| Some(amount(one)? / (one.time_ns / 1e9)));
        rates.filter(|rate| rate.is_finite()).fold(0.0, f64::max)
    };
    let is_gemm = |one: &OperatorCost| Some(one.flops? > 8.0 * one.bytes?);
    let gemm = |one: &OperatorCost| one.flops.filter(|_| is_gemm(one) == Some(true));
    let stream = |one: &OperatorCost| one.bytes.filter(|_| is_gemm(one) == Some(false));
    let cores = f64::from(cores.max(1));
    let measured = |rate: f64, default: f64| if rate > 0.0 { rate } else { default };
    let fp32 = measured(fastest(&gemm), FLOPS_PER_CORE * cores);
    let bandwidth = measured(fastest(&stream), BANDWIDTH_PER_CORE * cores.min(4.0));
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
    fn rates_come_from_the_fastest_operators() {
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
            // This call is too short: it measures the clock.
            operator(1e9, 1e9, 10.0),
        ];
        let line = LineCost { operators, ..LineCost::default() };
        let profile = Profile { lines: vec![vec![line]], ..Profile::default() };
        let found = cpu(Some(&profile), 2);
        assert_eq!(found.peaks.fp32, Some(2e11));
        assert_eq!(found.bandwidth, 1e10);
        assert_eq!(cpu(None, 2).peaks.fp32, Some(2.0 * FLOPS_PER_CORE));
    }
}
