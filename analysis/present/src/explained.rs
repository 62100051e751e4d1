//! What an iteration gets out of its device, in words and as JSON has it.

use serde::Serialize;

use super::page::count;
use super::share::{share_of, share_of_peak, share_of_whole};
use ridgeline_base::units;
use ridgeline_profile::utilization::{Copied, Utilization};
use ridgeline_profile::{ModuleCost, Phase, Profile, Roof};

/// A share below this is not worth a word.
const LEAST: f64 = 0.01;
/// What is below this part of the iteration or of the peak is not worth a word.
pub(super) const WORTH_TELLING: f64 = 0.005;

/// Whether the products of a part ran on tensor cores: nothing where it has none, or nobody knows.
fn tensor_cores(part: &Utilization) -> Option<String> {
    let share = part.tensor_cores()?;
    Some(match share {
        share if share > 0.995 => "tensor cores used".to_owned(),
        share if share < 0.005 => "tensor cores not used".to_owned(),
        share => format!("tensor cores used in {} of GEMM time", units::percent(share)),
    })
}

/// What the operators of a part reach: `FP16 34% of the peak · bandwidth 41% of the peak · tensor cores
/// used`.
fn reached(part: &Utilization, roof: Option<&Roof>) -> Vec<String> {
    let mut facts = Vec::new();
    for (name, of_peak) in part.of_peaks(roof) {
        // What lies below is the arithmetic of element-wise kernels, which memory limits.
        if let Some(share) = of_peak.filter(|share| *share >= 0.02) {
            facts.push(format!("{name} {} of the peak", units::percent(share)));
        }
    }
    if let Some(share) = part.of_bandwidth(roof) {
        facts.push(format!("bandwidth {} of the peak", units::percent(share)));
    }
    facts.extend(tensor_cores(part));
    facts
}

/// What a person should know of a part that took so long: at most a few short texts.
pub fn facts(part: &Utilization, elapsed_ns: f64, profile: &Profile, on_gpu: bool) -> Vec<String> {
    let share = |time_ns: f64| share_of(time_ns, elapsed_ns);
    if !on_gpu {
        let mut facts = Vec::new();
        if part.operator_ns > 0.0 {
            facts.push(format!("{} in PyTorch ops", units::percent(share(part.operator_ns))));
        }
        let exposed = share(part.exposed_communication_ns);
        if exposed >= WORTH_TELLING {
            facts.push(format!("{} waiting for other ranks", units::percent(exposed)));
        }
        let hidden = share(part.communication_ns) - exposed;
        if hidden >= WORTH_TELLING {
            facts.push(format!("{} communication overlapped", units::percent(hidden)));
        }
        return facts;
    }
    let mut facts = Vec::new();
    if share(part.busy_ns) > 0.0 {
        facts.push(format!("GPU busy {}", units::percent(share(part.busy_ns))));
    }
    // What a GPU reaches that has next to nothing to do says nothing of the program.
    let works = share(part.busy_ns) >= WORTH_TELLING;
    if works {
        facts.extend(reached(part, profile.device.roof.as_ref()));
    }
    if let Some(occupancy) = part.occupancy().filter(|_| works) {
        facts.push(format!("occupancy {}", units::percent(occupancy)));
    }
    if part.launches > 0.0 {
        let launch = units::duration(part.launch_ns);
        let launches = if part.launches == 1.0 { "launch" } else { "launches" };
        facts.push(format!("{} {launches} ({launch} on the CPU)", count(part.launches)));
    }
    for (name, copied) in [("to the GPU", &part.to_device), ("to the host", &part.to_host)] {
        if share(copied.time_ns) >= WORTH_TELLING {
            let (bytes, time) = (units::bytes(copied.bytes), units::duration(copied.time_ns));
            facts.push(format!("copies {name} {bytes} in {time}"));
        }
    }
    if share(part.communication_ns) >= WORTH_TELLING {
        let (all, exposed) = (part.communication_ns, part.exposed_communication_ns);
        let exposed = units::percent(share_of(exposed, all));
        facts.push(format!("communication {} ({exposed} exposed)", units::duration(all)));
    }
    facts
}

/// The facts of a phase, which took so long. A moment of it is not worth a word.
pub fn of_phase(phase: Phase, profile: &Profile) -> Vec<String> {
    let part = profile.metrics.as_ref().and_then(|metrics| metrics.phases.get(phase as usize));
    of_part(part, profile.iteration.phases.get(phase), profile)
}

/// The facts of a phase, or of what a line does itself, which took so long: nothing where it is a moment
/// of the iteration, or nothing is known of it.
pub fn of_part(part: Option<&Utilization>, elapsed_ns: f64, profile: &Profile) -> Vec<String> {
    let Some((part, metrics)) = part.zip(profile.metrics.as_ref()) else { return Vec::new() };
    if share_of_whole(elapsed_ns, profile) < LEAST {
        return Vec::new();
    }
    facts(part, elapsed_ns, profile, metrics.on_gpu)
}

/// The facts of modules together: of their forward and backward passes.
pub fn of_modules<'a>(
    modules: impl Iterator<Item = &'a ModuleCost>,
    profile: &Profile,
) -> Vec<String> {
    let (mut all, mut passes_ns): (Option<Utilization>, f64) = (None, 0.0);
    for module in modules {
        passes_ns += module.passes_ns();
        if let Some(part) = &module.utilization {
            all.get_or_insert_default().add(part);
        }
    }
    of_part(all.as_ref(), passes_ns, profile)
}

/// `before the iteration 18 MB · forward 90 MB`: when what is alive at the peak was made. Nothing where
/// that is not known; what is hardly any is left out.
pub fn made(profile: &Profile) -> Option<String> {
    let of = |phase: Option<Phase>| (phase, profile.memory.made.get(phase));
    let all = std::iter::once(None).chain(Phase::ALL.map(Some)).map(of);
    let told: Vec<String> = all
        .filter(|(_, bytes)| share_of_peak(*bytes, profile) >= LEAST)
        .map(|(phase, bytes)| {
            let when = phase.map_or("before the step", Phase::name);
            format!("{when} {}", units::bytes(bytes as f64))
        })
        .collect();
    (!told.is_empty()).then(|| told.join(" · "))
}

/// What a part of the iteration gets out of its device, as JSON has it: shares from 0 to 1, null where
/// unknown or where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UtilizationEntry {
    /// The GPU was busy, of the part's time.
    pub gpu_busy: Option<f64>,
    /// The host was in operators, of the part's time.
    pub in_operators: Option<f64>,
    /// Of the device's peak, while operators of the type ran.
    pub fp32_of_peak: Option<f64>,
    /// The same in TF32.
    pub tf32_of_peak: Option<f64>,
    /// The same in FP16 and BF16.
    pub fp16_of_peak: Option<f64>,
    /// Of the memory's bandwidth, while operators ran.
    pub bandwidth_of_peak: Option<f64>,
    /// Of the time of products.
    pub tensor_cores: Option<f64>,
    /// The mean over kernels' time.
    pub occupancy: Option<f64>,
    /// Floating-point operations.
    pub flops: f64,
    /// Kernels, copies and fills.
    pub launches: f64,
    /// The host within the calls that start them, as recorded, in milliseconds.
    pub launch_ms: f64,
    /// Kernels that compute, in milliseconds.
    pub kernel_ms: f64,
    /// Copies from host to GPU.
    pub to_device: CopyEntry,
    /// Copies from GPU to host.
    pub to_host: CopyEntry,
    /// Kernels that communicate, in milliseconds; on a processor, exchanges with other ranks.
    pub communication_ms: f64,
    /// Of that, while nothing computed.
    pub exposed_communication_ms: f64,
}

/// Copies in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopyEntry {
    calls: f64,
    bytes: f64,
    ms: f64,
}

/// The entry of a part that took so long.
pub fn utilization_entry(
    part: &Utilization,
    elapsed_ns: f64,
    profile: &Profile,
) -> UtilizationEntry {
    let on_gpu = profile.metrics.as_ref().is_some_and(|metrics| metrics.on_gpu);
    let share = |time_ns: f64| (elapsed_ns > 0.0).then(|| finite(share_of(time_ns, elapsed_ns)));
    let [fp32, tf32, fp16] =
        part.of_peaks(profile.device.roof.as_ref()).map(|(_, share)| share.map(finite));
    let copies = |copied: &Copied| CopyEntry {
        calls: finite(copied.calls),
        bytes: finite(copied.bytes),
        ms: milliseconds(copied.time_ns),
    };
    UtilizationEntry {
        gpu_busy: share(part.busy_ns).filter(|_| on_gpu),
        in_operators: share(part.operator_ns),
        fp32_of_peak: fp32,
        tf32_of_peak: tf32,
        fp16_of_peak: fp16,
        bandwidth_of_peak: part.of_bandwidth(profile.device.roof.as_ref()).map(finite),
        tensor_cores: part.tensor_cores().map(finite),
        occupancy: part.occupancy().map(finite),
        flops: finite(part.fp32.amount + part.tf32.amount + part.half.amount),
        launches: finite(part.launches),
        launch_ms: milliseconds(part.launch_ns),
        kernel_ms: milliseconds(part.kernel_ns),
        to_device: copies(&part.to_device),
        to_host: copies(&part.to_host),
        communication_ms: milliseconds(part.communication_ns),
        exposed_communication_ms: milliseconds(part.exposed_communication_ns),
    }
}

pub(super) fn milliseconds(nanoseconds: f64) -> f64 {
    finite(nanoseconds / 1e6)
}

/// Six decimals; what is no number is 0, because JSON has no other.
pub(super) fn finite(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};
    use ridgeline_profile::MemoryByAge;
    use ridgeline_profile::utilization::{Done, Metrics};

    #[test]
    fn memory_is_told_by_when_it_was_made() {
        let mut profile = profile(TRAIN).1;
        assert_eq!(made(&profile), None);
        profile.memory.made =
            MemoryByAge { before: 18_000_000, phases: [0, 90_000_000, 11_000_000, 1_000_000, 0] };
        let expected = "before the step 18 MB · forward 90 MB · backward 11 MB";
        assert_eq!(made(&profile).as_deref(), Some(expected));
    }

    #[test]
    fn facts_are_short() {
        let mut profile = profile(TRAIN).1;
        let part = Utilization {
            busy_ns: 62e6,
            kernel_ns: 50e6,
            fp32: Done { amount: 3e11, time_ns: 10e6 },
            moved: Done { amount: 9.6e9, time_ns: 10e6 },
            tensor_core_ns: 30e6,
            other_product_ns: 10e6,
            launches: 120.0,
            launch_ns: 1e6,
            to_device: Copied { calls: 2.0, bytes: 12e6, time_ns: 2e6 },
            communication_ns: 10e6,
            exposed_communication_ns: 4e6,
            ..Utilization::default()
        };
        let expected = [
            "GPU busy 62%",
            "FP32 50% of the peak",
            "bandwidth 20% of the peak",
            "tensor cores used in 75% of GEMM time",
            "120 launches (1.0 ms on the CPU)",
            "copies to the GPU 12 MB in 2.0 ms",
            "communication 10 ms (40% exposed)",
        ];
        assert_eq!(facts(&part, 100e6, &profile, true), expected);
        let on_cpu = Utilization { operator_ns: 80e6, ..Utilization::default() };
        assert_eq!(facts(&on_cpu, 100e6, &profile, false), ["80% in PyTorch ops"]);
        let of_ranks = Utilization { exposed_communication_ns: 15e6, ..on_cpu };
        assert_eq!(
            facts(&of_ranks, 100e6, &profile, false),
            ["80% in PyTorch ops", "15% waiting for other ranks"]
        );
        let hidden = Utilization { communication_ns: 40e6, ..of_ranks };
        assert_eq!(
            facts(&hidden, 100e6, &profile, false)[1..],
            ["15% waiting for other ranks", "25% communication overlapped"]
        );
        // Nothing is known of what was not replayed, and nothing is said of what is nothing.
        assert_eq!(of_part(Some(&part), 100e6, &profile), [""; 0]);
        assert_eq!(facts(&Utilization::default(), 100e6, &profile, true), [""; 0]);
        profile.metrics = Some(Arc::new(Metrics { on_gpu: true, ..Metrics::default() }));
        assert_eq!(of_part(Some(&part), 100e6, &profile), expected);
        assert_eq!(of_part(Some(&part), 0.9e6, &profile), [""; 0]);
        assert_eq!(of_part(None, 100e6, &profile), [""; 0]);
        let entry = utilization_entry(&part, 100e6, &profile);
        assert_eq!(entry.gpu_busy, Some(0.62));
        assert_eq!((entry.tf32_of_peak, entry.fp16_of_peak, entry.occupancy), (None, None, None));
    }
}
