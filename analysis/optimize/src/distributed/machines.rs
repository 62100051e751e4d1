//! One GPU or several: an iteration on machines with 1, 2, 4 and 8 GPUs of a model, from the same iteration on one. The
//! host is assumed to load data for all of them as fast as for one.

use super::all_reduce::Topology;
use super::links;
use super::single_step::{SHIPPED, SingleStep, on_several};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::range::Range;

/// The numbers of GPUs that machines are offered with.
const COUNTS: [u32; 4] = [1, 2, 4, 8];
/// With a larger share of the iteration in waiting for data, several GPUs are not predicted, because the GPUs of a machine
/// share the CPU that loads it.
const MAX_DATA_SHARE: f64 = 0.2;
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
    /// Whether that time is measured.
    pub is_measured: bool,
    /// The part of it in which the iteration waits for data.
    pub data_ns: f64,
}

impl OneGpu<'_> {
    fn waits_for_data(&self) -> bool {
        self.data_ns >= MAX_DATA_SHARE * self.time_ns.value
    }
}

/// Machines with one GPU and with several.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// By GPU model, and then by the number of GPUs.
    pub all: Vec<Machine>,
    /// Bytes of gradients that the GPUs of a machine exchange in each iteration.
    pub gradient_bytes: f64,
    /// Whether GPUs are left out, because the iteration would wait for data on them.
    pub leaves_out_waiting: bool,
}

/// Why one GPU is not compared with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMachines {
    /// There are no gradients to exchange, or no GPUs.
    NoExchange,
    /// The iteration waits for data on every GPU.
    WaitsForData,
}

/// Compares each GPU with machines of several, from the first group in which not all GPUs wait for data.
///
/// # Errors
/// If there is none.
pub fn one_or_several(
    groups: &[Vec<OneGpu<'_>>],
    gradient_bytes: f64,
) -> Result<Machines, NoMachines> {
    let is_exchanged = gradient_bytes.is_finite() && gradient_bytes > 0.0;
    if !is_exchanged || groups.iter().all(Vec::is_empty) {
        return Err(NoMachines::NoExchange);
    }
    let group = groups.iter().find(|group| !group.iter().all(OneGpu::waits_for_data));
    let group = group.ok_or(NoMachines::WaitsForData)?;
    let compared = group.iter().filter(|one| !one.waits_for_data());
    let all = compared.flat_map(|one| COUNTS.into_iter().map(move |gpus| (one, gpus)));
    Ok(Machines {
        all: all.filter_map(|(one, gpus)| machine(one, gradient_bytes, gpus)).collect(),
        gradient_bytes,
        leaves_out_waiting: group.iter().any(OneGpu::waits_for_data),
    })
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
    /// Whether that time is measured. Never for several GPUs.
    pub is_measured: bool,
    /// Throughput of all GPUs.
    pub samples_per_second: Range,
    /// US dollars per hour of all GPUs, if the model has a price.
    pub usd_per_hour: Option<f64>,
    /// US dollars, if the model has a price.
    pub usd_per_million_samples: Option<Range>,
}

/// Predicts an iteration on `gpus` GPUs in one machine that exchange `gradient_bytes` after each backward pass. `None` if
/// the time on one GPU is unknown.
fn machine(one: &OneGpu<'_>, gradient_bytes: f64, gpus: u32) -> Option<Machine> {
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
        is_measured: one.is_measured && gpus == 1,
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
        let one = OneGpu {
            device,
            batch_size: 32,
            time_ns: Range::within_factor(100e6, 1.1),
            is_measured: true,
            data_ns: 0.0,
        };
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
        assert!(alone.is_measured && !on("A100-SXM4-80GB", 1e9, 2).is_measured);
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
            super::machine(
                &OneGpu {
                    device,
                    batch_size,
                    time_ns: Range::exact(time_ns),
                    is_measured: true,
                    data_ns: 0.0,
                },
                1e6,
                2,
            )
        };
        assert_eq!(machine(f64::NAN, 8), None);
        assert_eq!(machine(f64::INFINITY, 8), None);
        assert_eq!(machine(1e6, 0), None);
    }

    #[test]
    fn gpus_that_wait_for_data_are_left_out() {
        let device = |name: &str| DeviceTable::shipped().find(name).expect("a device of the table");
        let one = |name: &str, batch_size: u64, data_ns: f64| OneGpu {
            device: device(name),
            batch_size,
            time_ns: Range::exact(100e6),
            is_measured: false,
            data_ns,
        };
        let all = [one("T4", 64, 10e6), one("RTX4090", 64, 60e6)];
        let found = one_or_several(&[all.to_vec()], 1e6).expect("machines with T4");
        assert_eq!(found.all.len(), COUNTS.len());
        assert!(found.leaves_out_waiting && found.all.iter().all(|one| one.device.name == "T4"));
        // With their own batch size they may not wait.
        let waiting = [vec![one("T4", 512, 80e6)]];
        let both = [waiting.to_vec(), vec![all.to_vec()]].concat();
        let found = one_or_several(&both, 1e6).expect("machines with T4");
        assert!(found.all.iter().all(|one| one.batch_size == 64));
        assert_eq!(one_or_several(&waiting, 1e6), Err(NoMachines::WaitsForData));
        assert_eq!(one_or_several(&[Vec::new()], 1e6), Err(NoMachines::NoExchange));
        for bytes in [0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(one_or_several(&waiting, bytes), Err(NoMachines::NoExchange));
        }
    }
}
