//! One GPU or several: an iteration on machines with 1, 2, 4 and 8 GPUs of a model, from the same iteration on one.

use super::all_reduce::Topology;
use super::links;
use super::single_step::{SHIPPED, SingleStep, on_several};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::range::Range;

/// The numbers of GPUs that machines are offered with.
pub const COUNTS: [u32; 4] = [1, 2, 4, 8];
const NS_PER_HOUR: f64 = 3.6e12;

/// An iteration on one GPU.
#[derive(Clone, Copy, Debug)]
pub struct OneGpu<'a> {
    /// The GPU.
    pub device: &'a DeviceSpec,
    /// Samples per iteration.
    pub batch_size: u64,
    /// Iteration time in nanoseconds.
    pub time_ns: Range,
}

/// The iteration on a machine with GPUs of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The GPU model.
    pub device: DeviceSpec,
    /// The number of GPUs.
    pub gpus: u32,
    /// Samples of each GPU per iteration, as on one.
    pub batch_size: u64,
    /// Iteration time in nanoseconds.
    pub time_ns: Range,
    /// Throughput of all GPUs.
    pub samples_per_second: Range,
    /// US dollars per hour of all GPUs, if the model has a price.
    pub usd_per_hour: Option<f64>,
    /// US dollars, if the model has a price.
    pub usd_per_million_samples: Option<Range>,
}

/// Predicts an iteration on `gpus` GPUs in one machine that exchange `gradient_bytes` after each backward pass. The host
/// is assumed to load data for all of them as fast as for one. `None` if the time on one GPU is unknown.
pub fn machine(one: &OneGpu<'_>, gradient_bytes: f64, gpus: u32) -> Option<Machine> {
    let route = links::route_of(one.device);
    let link = links::link(one.device, gpus, route, SHIPPED.through_host);
    let topology = Topology { gpus, per_machine: gpus, link, network: link };
    let on_all = |nanoseconds: f64| {
        let step = SingleStep {
            milliseconds: nanoseconds / 1e6,
            gradient_bytes,
            feeding_milliseconds: 0.0,
        };
        on_several(&step, &topology, &SHIPPED).times(1e6)
    };
    let time_ns = Range {
        low: on_all(one.time_ns.low).low,
        value: on_all(one.time_ns.value).value,
        high: on_all(one.time_ns.high).high,
    };
    if !(one.batch_size > 0 && time_ns.low > 0.0 && time_ns.high.is_finite()) {
        return None;
    }
    let samples = one.batch_size as f64 * f64::from(gpus);
    let per_second = |ns: f64| samples * 1e9 / ns;
    let usd_per_hour = one.device.price.as_ref().map(|price| price.usd_per_hour * f64::from(gpus));
    Some(Machine {
        device: one.device.clone(),
        gpus,
        batch_size: one.batch_size,
        time_ns,
        samples_per_second: Range {
            low: per_second(time_ns.high),
            value: per_second(time_ns.value),
            high: per_second(time_ns.low),
        },
        usd_per_hour,
        usd_per_million_samples: usd_per_hour
            .map(|usd| time_ns.times(usd / NS_PER_HOUR / samples * 1e6)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ridgeline_devices::device_table::DeviceTable;

    fn on(name: &str, gradient_bytes: f64, gpus: u32) -> Machine {
        let device = DeviceTable::shipped().find(name).expect("a device of the table");
        let one = OneGpu { device, batch_size: 32, time_ns: Range::within_factor(100e6, 1.1) };
        machine(&one, gradient_bytes, gpus).expect("its time is known")
    }

    #[test]
    fn one_gpu_keeps_its_time() {
        let alone = on("A100-SXM4-80GB", 1e9, 1);
        assert!(
            (alone.time_ns.value - 100e6).abs() < 1.0
                && (alone.time_ns.low - 100e6 / 1.1).abs() < 1.0
        );
        assert!((alone.samples_per_second.value - 320.0).abs() < 1e-6);
    }

    #[test]
    fn a_slow_link_makes_several_gpus_expensive() {
        let per_sample =
            |machine: &Machine| machine.usd_per_million_samples.expect("it has a price").value;
        let (alone, nvlink) = (on("A100-SXM4-80GB", 400e6, 1), on("A100-SXM4-80GB", 400e6, 8));
        let through_host = on("RTX4090", 400e6, 8);
        assert_eq!(nvlink.usd_per_hour, alone.usd_per_hour.map(|usd| usd * 8.0));
        assert!(per_sample(&nvlink) < per_sample(&alone) * 1.1);
        assert!(per_sample(&through_host) > per_sample(&on("RTX4090", 400e6, 1)) * 1.5);
        assert!(
            through_host.time_ns.high / through_host.time_ns.low
                > nvlink.time_ns.high / nvlink.time_ns.low
        );
    }

    #[test]
    fn an_unknown_time_has_no_prediction() {
        let device = DeviceTable::shipped().find("T4").expect("a device of the table");
        let machine = |time_ns, batch_size| {
            super::machine(&OneGpu { device, batch_size, time_ns: Range::exact(time_ns) }, 1e6, 2)
        };
        assert_eq!(machine(f64::NAN, 8), None);
        assert_eq!(machine(f64::INFINITY, 8), None);
        assert_eq!(machine(1e6, 0), None);
    }
}
