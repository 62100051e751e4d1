//! Rejects implausible measured rates of a GPU. A driver that counts time wrongly, a GPU that was
//! in use, or a damaged cache file gives rates that no GPU reaches; datasheet values give better
//! predictions than those.

use ridgeline_base::units;
use ridgeline_devices::device_spec::{Ceilings, DeviceSpec, Rates};

/// The maximum share of the datasheet value. More is a measurement error: boards are sold with
/// clocks up to 10% above the reference.
const MAX_OF_DATASHEET: f64 = 1.1;
/// The minimum share of the datasheet value. With less, the GPU was in use, or its name is wrong. A
/// GPU with a lowered power limit still reaches a quarter.
const MIN_OF_DATASHEET: f64 = 0.1;
/// Plausible bandwidth in bytes per second without a datasheet row: from an integrated GPU of 2010
/// to ten times today's fastest.
const BANDWIDTH: (f64, f64) = (1e9, 1e14);
/// Plausible FLOP/s, with the same limits.
const FLOPS: (f64, f64) = (1e10, 1e17);
/// Plausible host copy rates in bytes per second: from pageable memory behind PCIe 1.0 x1 to ten
/// times NVLink-C2C of a Grace Hopper.
const HOST_COPIES: (f64, f64) = (1e8, 5e12);
/// Plausible launch latencies in nanoseconds; real ones are 2 to 10 µs.
const LAUNCH_NS: (f64, f64) = (100.0, 1e6);

/// Returns the plausible ceilings, and for each rejected one the reason as a sentence without a
/// full stop. `device` is the datasheet row of the GPU, if it has one.
pub fn plausible(measured: &Ceilings, device: Option<&DeviceSpec>) -> (Ceilings, Vec<String>) {
    let mut rejected = Vec::new();
    let mut rate =
        |name: &str, value: Option<f64>, datasheet: Option<f64>, limits: (f64, f64), unit| {
            let value = value?;
            let datasheet = datasheet.filter(|datasheet| *datasheet > 0.0);
            let limits = match datasheet {
                Some(datasheet) => (datasheet * MIN_OF_DATASHEET, datasheet * MAX_OF_DATASHEET),
                None => limits,
            };
            if (limits.0..=limits.1).contains(&value) {
                return Some(value);
            }
            let shown = units::rate(value, unit);
            rejected.push(match datasheet {
                Some(datasheet) => format!(
                    "{name} of {shown} is ignored: it is {} of the datasheet value ({})",
                    units::percent(value / datasheet),
                    units::rate(datasheet, unit)
                ),
                None => format!("{name} of {shown} is ignored: no GPU reaches it"),
            });
            None
        };
    let peaks = device.map(|device| device.peaks).unwrap_or_default();
    let datasheet_bandwidth = device.map(|device| device.bandwidth);
    let bandwidth =
        rate("a copy bandwidth", measured.bandwidth, datasheet_bandwidth, BANDWIDTH, "B/s");
    let gemm = &measured.gemm;
    let gemm = Rates {
        fp32: rate("an FP32 GEMM rate", gemm.fp32, peaks.fp32, FLOPS, "FLOP/s"),
        tf32: rate("a TF32 GEMM rate", gemm.tf32, peaks.tf32, FLOPS, "FLOP/s"),
        fp16: rate("an FP16 GEMM rate", gemm.fp16, peaks.fp16, FLOPS, "FLOP/s"),
        bf16: rate("a BF16 GEMM rate", gemm.bf16, peaks.bf16, FLOPS, "FLOP/s"),
        fp8: rate("an FP8 GEMM rate", gemm.fp8, peaks.fp8, FLOPS, "FLOP/s"),
    };
    let host_to_device =
        rate("a host-to-device rate", measured.host_to_device, None, HOST_COPIES, "B/s");
    let device_to_host =
        rate("a device-to-host rate", measured.device_to_host, None, HOST_COPIES, "B/s");
    let launch_ns = measured.launch_ns.filter(|value| {
        let is_plausible = (LAUNCH_NS.0..=LAUNCH_NS.1).contains(value);
        if !is_plausible {
            let shown = units::duration(*value);
            rejected.push(format!("a launch latency of {shown} is ignored: no GPU reaches it"));
        }
        is_plausible
    });
    let plausible = Ceilings {
        bandwidth,
        gemm,
        launch_ns,
        host_to_device,
        device_to_host,
        measured_on: measured.measured_on,
    };
    (plausible, rejected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::device_table::DeviceTable;

    fn h200() -> &'static DeviceSpec {
        DeviceTable::shipped().find("NVIDIA H200").expect("a GPU of the table")
    }

    fn measured() -> Ceilings {
        Ceilings {
            bandwidth: Some(4.3e12),
            gemm: Rates { fp32: Some(50e12), bf16: Some(780e12), ..Rates::default() },
            launch_ns: Some(2_500.0),
            host_to_device: Some(55e9),
            device_to_host: Some(54e9),
            measured_on: "2026-11-24".parse().ok(),
        }
    }

    #[track_caller]
    fn check_rejected(change: impl FnOnce(&mut Ceilings), device: Option<&DeviceSpec>, why: &str) {
        let mut changed = measured();
        change(&mut changed);
        let (kept, rejected) = plausible(&changed, device);
        assert_eq!(rejected, [why]);
        assert_eq!(plausible(&kept, device), (kept, Vec::new()));
    }

    #[test]
    fn plausible_rates_are_kept_with_their_date() {
        assert_eq!(plausible(&measured(), Some(h200())), (measured(), Vec::new()));
        assert_eq!(plausible(&measured(), None), (measured(), Vec::new()));
    }

    #[test]
    fn rates_far_from_the_datasheet_are_rejected() {
        check_rejected(
            |it| it.bandwidth = Some(6e12),
            Some(h200()),
            "a copy bandwidth of 6.0 TB/s is ignored: it is 125% of the datasheet value (4.8 TB/s)",
        );
        check_rejected(
            |it| it.gemm.bf16 = Some(60e12),
            Some(h200()),
            "a BF16 GEMM rate of 60 TFLOP/s is ignored: it is 6% of the datasheet value (989 TFLOP/s)",
        );
    }

    #[test]
    fn impossible_rates_are_rejected_without_a_datasheet() {
        check_rejected(
            |it| it.gemm.fp32 = Some(1.0),
            None,
            "an FP32 GEMM rate of 1.0 FLOP/s is ignored: no GPU reaches it",
        );
        check_rejected(
            |it| it.launch_ns = Some(0.0),
            None,
            "a launch latency of 0 ns is ignored: no GPU reaches it",
        );
        let (kept, rejected) = plausible(
            &Ceilings { bandwidth: Some(f64::NAN), host_to_device: Some(-3.0), ..measured() },
            Some(h200()),
        );
        assert_eq!((kept.bandwidth, kept.host_to_device, rejected.len()), (None, None, 2));
    }
}
