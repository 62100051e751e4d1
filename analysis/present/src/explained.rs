//! How well an iteration uses its device, as text and as JSON.

use serde::Serialize;

use super::page::count;
use super::share::{share_of, share_of_peak, share_of_whole};
use ridgeline_base::units;
use ridgeline_profile::utilization::{CopyTotals, Utilization};
use ridgeline_profile::{ModuleCost, Phase, Profile, Roof};

/// Parts below this share of the iteration, or of peak memory, are not described.
const MIN_PART_SHARE: f64 = 0.01;
/// Facts below this share are not shown.
pub(super) const MIN_REPORTED_SHARE: f64 = 0.005;

/// Whether the GEMMs of a part ran on tensor cores. `None` if there are none, or it is unknown.
fn tensor_cores(part: &Utilization) -> Option<String> {
    let share = part.tensor_cores()?;
    Some(match share {
        share if share > 0.995 => "tensor cores used".to_owned(),
        share if share < 0.005 => "tensor cores not used".to_owned(),
        share => format!("tensor cores used in {} of GEMM time", units::percent(share)),
    })
}

/// The utilization that the operators of a part reach: `FP16 34% of the peak · bandwidth 41% of the
/// peak · tensor cores used`.
fn reached(part: &Utilization, roof: Option<&Roof>) -> Vec<String> {
    let mut facts = Vec::new();
    for (name, of_peak) in part.of_peaks(roof) {
        // Lower values are the arithmetic of element-wise kernels, which are bandwidth-bound.
        if let Some(share) = of_peak.filter(|share| *share >= 0.02) {
            facts.push(of_peak_text(name, share));
        }
    }
    if let Some(share) = part.of_bandwidth(roof) {
        facts.push(of_peak_text("bandwidth", share));
    }
    facts.extend(tensor_cores(part));
    facts
}

/// The share of a peak. A larger rate than the peak means that the counted work or its type is
/// wrong.
fn of_peak_text(name: &str, share: f64) -> String {
    if share <= 1.0 {
        return format!("{name} {} of the peak", units::percent(share));
    }
    match name {
        "bandwidth" => "bandwidth above the peak (caches serve a part)".to_owned(),
        _ => format!("{name} above the peak (a part runs in a lower precision)"),
    }
}

/// Short facts about a part of the iteration that took `elapsed_ns`.
pub fn facts(part: &Utilization, elapsed_ns: f64, profile: &Profile, on_gpu: bool) -> Vec<String> {
    let share = |time_ns: f64| share_of(time_ns, elapsed_ns);
    if !on_gpu {
        let mut facts = Vec::new();
        if part.operator_ns > 0.0 {
            facts.push(format!("{} in PyTorch ops", units::percent(share(part.operator_ns))));
        }
        let exposed = share(part.exposed_communication_ns);
        if exposed >= MIN_REPORTED_SHARE {
            facts.push(format!("{} waiting for other ranks", units::percent(exposed)));
        }
        let hidden = share(part.communication_ns) - exposed;
        if hidden >= MIN_REPORTED_SHARE {
            facts.push(format!("{} communication overlapped", units::percent(hidden)));
        }
        return facts;
    }
    let mut facts = Vec::new();
    if share(part.busy_ns) > 0.0 {
        facts.push(format!("GPU busy {}", units::percent(share(part.busy_ns))));
    }
    // The utilization of an almost idle GPU says nothing about the program.
    let is_busy = share(part.busy_ns) >= MIN_REPORTED_SHARE;
    if is_busy {
        facts.extend(reached(part, profile.device.roof.as_ref()));
    }
    if let Some(occupancy) = part.occupancy().filter(|_| is_busy) {
        facts.push(format!("occupancy {}", units::percent(occupancy)));
    }
    if part.launches > 0.0 {
        let launch = units::duration(part.launch_ns);
        let launches = if part.launches == 1.0 { "launch" } else { "launches" };
        let without = match part.long_launches {
            0.0 => String::new(),
            long => format!(", without {} of at least 1 ms", count(long)),
        };
        facts.push(format!("{} {launches} ({launch} on the CPU{without})", count(part.launches)));
    }
    for (name, copied) in [("to the GPU", &part.to_device), ("to the host", &part.to_host)] {
        if share(copied.time_ns) >= MIN_REPORTED_SHARE {
            let time = units::duration(copied.time_ns);
            // Some profilers do not record the bytes.
            facts.push(match copied.bytes {
                0.0 => format!("copies {name} take {time}"),
                bytes => format!("copies {name} {} in {time}", units::bytes(bytes)),
            });
        }
    }
    if share(part.communication_ns) >= MIN_REPORTED_SHARE {
        let (all, exposed) = (part.communication_ns, part.exposed_communication_ns);
        let exposed = units::percent(share_of(exposed, all));
        facts.push(format!("communication {} ({exposed} exposed)", units::duration(all)));
    }
    facts
}

/// Facts about a phase. Empty if the phase takes a negligible share of the iteration.
pub fn of_phase(phase: Phase, profile: &Profile) -> Vec<String> {
    let part = profile.metrics.as_ref().and_then(|metrics| metrics.phases.get(phase as usize));
    of_part(part, profile.iteration.phases.get(phase), profile)
}

/// Facts about a phase, or about the self time of a line. Empty if it takes a negligible share of
/// the iteration, or nothing is known.
pub fn of_part(part: Option<&Utilization>, elapsed_ns: f64, profile: &Profile) -> Vec<String> {
    let Some((part, metrics)) = part.zip(profile.metrics.as_ref()) else { return Vec::new() };
    if share_of_whole(elapsed_ns, profile) < MIN_PART_SHARE {
        return Vec::new();
    }
    facts(part, elapsed_ns, profile, metrics.on_gpu)
}

/// Facts about the forward and backward passes of several modules together.
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

/// Returns when the memory alive at the peak was allocated: `before the step 18 MB · forward 90
/// MB`. Leaves out negligible amounts. `None` if this is not known.
pub fn allocation_phases(profile: &Profile) -> Option<String> {
    let bytes_of = |phase: Option<Phase>| (phase, profile.memory.by_age.get(phase));
    let all = std::iter::once(None).chain(Phase::ALL.map(Some)).map(bytes_of);
    let parts: Vec<String> = all
        .filter(|(_, bytes)| share_of_peak(*bytes, profile) >= MIN_PART_SHARE)
        .map(|(phase, bytes)| {
            let when = phase.map_or("before the step", Phase::name);
            format!("{when} {}", units::bytes(bytes as f64))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// The utilization of a part of the iteration in JSON. Shares are from 0 to 1, and null if unknown
/// or not applicable.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UtilizationEntry {
    /// Share of the part's time with the GPU busy.
    pub gpu_busy: Option<f64>,
    /// Share of the part's time that the host spent in operators.
    pub in_operators: Option<f64>,
    /// FP32 throughput as a share of the peak, while FP32 operators ran.
    pub fp32_of_peak: Option<f64>,
    /// The same for TF32.
    pub tf32_of_peak: Option<f64>,
    /// The same for FP16 and BF16.
    pub fp16_of_peak: Option<f64>,
    /// Bandwidth as a share of the memory's peak, while operators ran.
    pub bandwidth_of_peak: Option<f64>,
    /// Share of GEMM time on tensor cores.
    pub tensor_cores: Option<f64>,
    /// Occupancy, averaged over kernel time.
    pub occupancy: Option<f64>,
    /// Floating-point operations.
    pub flops: f64,
    /// Launches of kernels, copies and fills.
    pub launches: f64,
    /// CPU time in the launch calls, as recorded, in milliseconds.
    pub launch_ms: f64,
    /// Time of compute kernels, in milliseconds.
    pub kernel_ms: f64,
    /// Copies from host to GPU.
    pub to_device: CopyEntry,
    /// Copies from GPU to host.
    pub to_host: CopyEntry,
    /// Time of communication kernels, in milliseconds; on a CPU, of exchanges with other ranks.
    pub communication_ms: f64,
    /// The part of it during which nothing computed.
    pub exposed_communication_ms: f64,
}

/// Copies in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopyEntry {
    calls: f64,
    bytes: f64,
    ms: f64,
}

/// Returns the entry of a part that took `elapsed_ns`.
pub fn utilization_entry(
    part: &Utilization,
    elapsed_ns: f64,
    profile: &Profile,
) -> UtilizationEntry {
    let on_gpu = profile.metrics.as_ref().is_some_and(|metrics| metrics.on_gpu);
    let share = |time_ns: f64| (elapsed_ns > 0.0).then(|| finite(share_of(time_ns, elapsed_ns)));
    let [fp32, tf32, fp16] =
        part.of_peaks(profile.device.roof.as_ref()).map(|(_, share)| share.map(finite));
    let copies = |copied: &CopyTotals| CopyEntry {
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

/// Rounds to six decimals. Values that are not finite become 0, because JSON cannot represent them.
pub(super) fn finite(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};
    use ridgeline_profile::MemoryByAge;
    use ridgeline_profile::utilization::{MeasuredWork, Metrics};

    #[test]
    fn peak_memory_is_split_by_time_of_allocation() {
        let mut profile = profile(TRAIN).1;
        assert_eq!(allocation_phases(&profile), None);
        profile.memory.by_age =
            MemoryByAge { before: 18_000_000, phases: [0, 90_000_000, 11_000_000, 1_000_000, 0] };
        let expected = "before the step 18 MB · forward 90 MB · backward 11 MB";
        assert_eq!(allocation_phases(&profile).as_deref(), Some(expected));
    }

    #[test]
    fn facts_are_short() {
        let mut profile = profile(TRAIN).1;
        let part = Utilization {
            busy_ns: 62e6,
            kernel_ns: 50e6,
            fp32: MeasuredWork { amount: 3e11, time_ns: 10e6 },
            moved: MeasuredWork { amount: 9.6e9, time_ns: 10e6 },
            tensor_core_ns: 30e6,
            other_matmul_ns: 10e6,
            launches: 120.0,
            launch_ns: 1e6,
            to_device: CopyTotals { calls: 2.0, bytes: 12e6, time_ns: 2e6 },
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
        let unusual = Utilization {
            moved: MeasuredWork { amount: 96e9, time_ns: 10e6 },
            long_launches: 2.0,
            to_device: CopyTotals { calls: 2.0, bytes: 0.0, time_ns: 2e6 },
            ..part
        };
        let found = facts(&unusual, 100e6, &profile, true);
        for fact in [
            "bandwidth above the peak (caches serve a part)",
            "120 launches (1.0 ms on the CPU, without 2 of at least 1 ms)",
            "copies to the GPU take 2.0 ms",
        ] {
            assert!(found.iter().any(|one| one == fact), "{found:?}");
        }
        let on_cpu = Utilization { operator_ns: 80e6, ..Utilization::default() };
        assert_eq!(facts(&on_cpu, 100e6, &profile, false), ["80% in PyTorch ops"]);
        let multi_rank = Utilization { exposed_communication_ns: 15e6, ..on_cpu };
        assert_eq!(
            facts(&multi_rank, 100e6, &profile, false),
            ["80% in PyTorch ops", "15% waiting for other ranks"]
        );
        let hidden = Utilization { communication_ns: 40e6, ..multi_rank };
        assert_eq!(
            facts(&hidden, 100e6, &profile, false)[1..],
            ["15% waiting for other ranks", "25% communication overlapped"]
        );
        // Without metrics there are no facts, and neither are there facts about zero values.
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
