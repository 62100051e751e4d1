//! What bounds an iteration and what it gets out of its device, in words and as JSON has it.

use serde::Serialize;

use super::page::count;
use super::share::{share_of, share_of_peak, share_of_whole};
use crate::printable::{clean, shorten};
use crate::profile::bound::{Bottleneck, Bound, Share};
use crate::profile::utilization::{Copied, Utilization};
use crate::profile::{FileId, ModuleCost, Phase, Profile, Roof};
use crate::units;

/// A share below this is not worth a word.
const LEAST: f64 = 0.01;
/// The second largest share is named beside the largest from this part of it on.
const BESIDE: f64 = 0.4;
/// A line that has this part of a share stands for it.
const STANDS_FOR: f64 = 0.3;
/// Copies and communication below this part of the iteration are not worth a word.
const WORTH_TELLING: f64 = 0.005;

/// What to call a share.
pub fn label(by: Bottleneck, on_gpu: bool) -> &'static str {
    match (by, on_gpu) {
        (Bottleneck::Compute, true) => "GPU compute",
        (Bottleneck::Compute, false) => "compute",
        (Bottleneck::MemoryBandwidth, true) => "GPU memory bandwidth",
        (Bottleneck::MemoryBandwidth, false) => "memory bandwidth",
        (Bottleneck::Operators, _) => "operators",
        (Bottleneck::Launches, _) => "kernel launches",
        (Bottleneck::Synchronization, _) => "synchronization",
        (Bottleneck::DataLoading, _) => "data loading",
        (Bottleneck::HostCopies, _) => "host-device copies",
        (Bottleneck::Communication, _) => "communication",
        (Bottleneck::HostCode, _) => "host code",
        (Bottleneck::Unknown, _) => "unknown",
    }
}

/// What a share is, in a sentence's second half: `the GPU waits for Python`.
fn told(by: Bottleneck, on_gpu: bool) -> &'static str {
    match (by, on_gpu) {
        (Bottleneck::Compute, true) => "the GPU's arithmetic is what takes its time",
        (Bottleneck::Compute, false) => "is in operators that compute",
        (Bottleneck::MemoryBandwidth, true) => "the GPU moves data in its memory",
        (Bottleneck::MemoryBandwidth, false) => "is in operators that move data",
        (Bottleneck::Operators, _) => {
            "is operators, too small or too slow for the processor's limits"
        }
        (Bottleneck::Launches, _) => "the GPU waits for kernels to be started",
        (Bottleneck::Synchronization, _) => "is lost by the host waiting for the GPU",
        (Bottleneck::DataLoading, _) => "waits for the next batch",
        (Bottleneck::HostCopies, _) => "waits for copies between host and GPU",
        (Bottleneck::Communication, true) => "waits for other GPUs",
        (Bottleneck::Communication, false) => "waits for other ranks",
        (Bottleneck::HostCode, true) => "the GPU waits for Python",
        (Bottleneck::HostCode, false) => "is Python and what else runs between operators",
        (Bottleneck::Unknown, _) => "is not explained",
    }
}

/// Who is to blame, as a heading says it.
fn blamed(by: Bottleneck, on_gpu: bool) -> &'static str {
    match (by, on_gpu) {
        (Bottleneck::HostCode, true) => "the host",
        (Bottleneck::HostCode, false) => "Python",
        (by, on_gpu) => label(by, on_gpu),
    }
}

/// `Bound by the host: 62% of the iteration the GPU waits for Python, mostly in train.py:31`.
pub fn verdict(bound: &Bound, profile: &Profile) -> String {
    let on_gpu = bound.on_gpu;
    let Some(largest) = bound.verdict() else {
        let unknown = units::percent(bound.share(Bottleneck::Unknown));
        return format!("What bounds it is not known: {unknown} of the iteration is not explained");
    };
    let share = units::percent(largest.share);
    let told = told(largest.by, on_gpu);
    let mut text =
        format!("Bound by {}: {share} of the iteration {told}", blamed(largest.by, on_gpu));
    if let Some(place) = stands_for(largest, profile) {
        text += &format!(", mostly in {place}");
    }
    text
}

/// The other shares that are worth a word: `kernel launches 20% · data loading 12%`. Those that stand
/// far behind are left out.
pub fn others(bound: &Bound) -> String {
    let largest = bound.shares.first().map_or(0.0, |share| share.share);
    let others = bound.shares.iter().skip(usize::from(bound.verdict().is_some()));
    let worth: Vec<String> = others
        .filter(|share| share.share >= (BESIDE * largest).min(0.1))
        .map(|share| format!("{} {}", label(share.by, bound.on_gpu), units::percent(share.share)))
        .collect();
    worth.join(" · ")
}

/// The line that has most of a share, where one does: `train.py:31`.
fn stands_for(share: &Share, profile: &Profile) -> Option<String> {
    let ((file, line), time_ns) = share.lines.first()?;
    let is_most = *time_ns >= STANDS_FOR * share.time_ns;
    is_most.then(|| place(profile, *file, *line)).flatten()
}

fn place(profile: &Profile, file: FileId, line: u32) -> Option<String> {
    let file = profile.files.get(file.0 as usize)?;
    Some(format!("{}:{line}", shorten(&clean(&file.path), 60)))
}

/// What a share is made of: lines, else operators.
pub fn evidence(share: &Share, profile: &Profile) -> String {
    let part = |time_ns: f64| units::percent(share_of(time_ns, share.time_ns));
    let worth = |time_ns: f64| time_ns >= 0.05 * share.time_ns;
    let lines: Vec<String> = share
        .lines
        .iter()
        .filter(|(_, time_ns)| worth(*time_ns))
        .filter_map(|((file, line), time_ns)| {
            Some(format!("{} {}", place(profile, *file, *line)?, part(*time_ns)))
        })
        .collect();
    if !lines.is_empty() {
        return lines.join(" · ");
    }
    let operators = share.operators.iter().filter(|(_, time_ns)| worth(*time_ns));
    let operators: Vec<String> = operators
        .map(|(name, time_ns)| format!("{} {}", shorten(&clean(name), 40), part(*time_ns)))
        .collect();
    operators.join(" · ")
}

/// Whether the products of a part ran on tensor cores: nothing where it has none, or nobody knows.
fn tensor_cores(part: &Utilization) -> Option<String> {
    let share = part.tensor_cores()?;
    Some(match share {
        share if share > 0.995 => "tensor cores used".to_owned(),
        share if share < 0.005 => "tensor cores not used".to_owned(),
        share => format!("tensor cores used in {} of its products", units::percent(share)),
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
            facts.push(format!("{} in operators", units::percent(share(part.operator_ns))));
        }
        let exposed = share(part.exposed_communication_ns);
        if exposed >= WORTH_TELLING {
            facts.push(format!("{} waiting for other ranks", units::percent(exposed)));
        }
        let hidden = share(part.communication_ns) - exposed;
        if hidden >= WORTH_TELLING {
            facts.push(format!("{} exchanging beside its work", units::percent(hidden)));
        }
        return facts;
    }
    let mut facts = Vec::new();
    if share(part.busy_ns) > 0.0 {
        facts.push(format!("GPU at work {}", units::percent(share(part.busy_ns))));
    }
    facts.extend(reached(part, profile.device.roof.as_ref()));
    if let Some(occupancy) = part.occupancy() {
        facts.push(format!("occupancy {}", units::percent(occupancy)));
    }
    if part.launches > 0.0 {
        let launch = units::duration(part.launch_ns);
        let noun = if part.launches == 1.0 { "launch" } else { "launches" };
        facts.push(format!("{} {noun} take the host {launch}", count(part.launches)));
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
        facts.push(format!("communication {}, {exposed} of it exposed", units::duration(all)));
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
            let when = phase.map_or("before the iteration", Phase::name);
            format!("{when} {}", units::bytes(bytes as f64))
        })
        .collect();
    (!told.is_empty()).then(|| told.join(" · "))
}

/// What bounds the iteration, as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundEntry {
    /// The key of the largest share; null where more is unknown.
    pub verdict: Option<&'static str>,
    /// The verdict in words.
    pub text: String,
    /// The largest first, what is unknown last; they add up to 1.
    pub shares: Vec<ShareEntry>,
}

/// One share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareEntry {
    /// `compute`, `memory_bandwidth`, `kernel_launches` and so on.
    pub key: &'static str,
    /// What to call it.
    pub label: &'static str,
    /// 0 to 1.
    pub share: f64,
    /// Milliseconds of the iteration.
    pub ms: f64,
    /// The lines that have most of it.
    pub lines: Vec<LineEntry>,
    /// The operators that have most of it.
    pub operators: Vec<OperatorEntry>,
}

/// A line's part of a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineEntry {
    /// Relative to the project's root.
    pub file: String,
    /// From 1.
    pub line: u32,
    /// Milliseconds.
    pub ms: f64,
}

/// An operator's part of a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorEntry {
    /// `aten::mm`.
    pub name: String,
    /// Milliseconds.
    pub ms: f64,
}

/// The entry of what bounds a profile.
pub fn bound_entry(bound: &Bound, profile: &Profile) -> BoundEntry {
    let share = |share: &Share| ShareEntry {
        key: share.by.key(),
        label: label(share.by, bound.on_gpu),
        share: finite(share.share),
        ms: milliseconds(share.time_ns),
        lines: share
            .lines
            .iter()
            .filter_map(|((file, line), time_ns)| {
                let file = profile.files.get(file.0 as usize)?;
                let ms = milliseconds(*time_ns);
                Some(LineEntry { file: file.path.clone(), line: *line, ms })
            })
            .collect(),
        operators: share
            .operators
            .iter()
            .map(|(name, time_ns)| OperatorEntry { name: name.clone(), ms: milliseconds(*time_ns) })
            .collect(),
    };
    BoundEntry {
        verdict: bound.verdict().map(|share| share.by.key()),
        text: verdict(bound, profile),
        shares: bound.shares.iter().map(share).collect(),
    }
}

/// What a part of the iteration gets out of its device, as JSON has it: shares from 0 to 1, null where
/// unknown or where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UtilizationEntry {
    /// The GPU was at work, of the part's time.
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
    /// The host within the calls that start them, in milliseconds.
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

/// The shares that are worth a row.
pub fn shown(bound: &Bound) -> impl Iterator<Item = &Share> {
    bound.shares.iter().filter(|share| share.share >= LEAST)
}

fn milliseconds(nanoseconds: f64) -> f64 {
    finite(nanoseconds / 1e6)
}

/// Six decimals; what is no number is 0, because JSON has no other.
fn finite(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::present::fixture::{TRAIN, profile};
    use crate::profile::MemoryByAge;
    use crate::profile::utilization::{Done, Metrics};

    fn share(by: Bottleneck, share: f64, line: Option<u32>) -> Share {
        let time_ns = share * 100e6;
        let lines = line.map(|line| ((FileId(0), line), 0.8 * time_ns)).into_iter().collect();
        Share { by, share, time_ns, lines, operators: vec![("aten::mm".to_owned(), time_ns)] }
    }

    fn told(on_gpu: bool, shares: Vec<Share>) -> (String, String) {
        let bound = Bound { iteration_ns: 100e6, on_gpu, shares };
        (verdict(&bound, &profile(TRAIN).1), others(&bound))
    }

    #[test]
    fn verdicts_are_sentences() {
        let host = share(Bottleneck::HostCode, 0.62, Some(18));
        let loading = share(Bottleneck::DataLoading, 0.3, None);
        let (text, beside) = told(true, vec![host.clone(), loading.clone()]);
        let expected = "Bound by the host: 62% of the iteration the GPU waits for Python, mostly in train.py:18";
        assert_eq!(text, expected);
        assert_eq!(beside, "data loading 30%");
        let (text, _) = told(false, vec![loading, host]);
        assert_eq!(text, "Bound by data loading: 30% of the iteration waits for the next batch");
    }

    #[test]
    fn what_is_mostly_unknown_has_no_verdict() {
        let known = share(Bottleneck::Launches, 0.3, None);
        let unknown = share(Bottleneck::Unknown, 0.7, None);
        let (text, beside) = told(true, vec![known, unknown]);
        assert_eq!(text, "What bounds it is not known: 70% of the iteration is not explained");
        assert_eq!(beside, "kernel launches 30% · unknown 70%");
    }

    #[test]
    fn evidence_is_lines_or_else_operators() {
        let profile = profile(TRAIN).1;
        let with_line = share(Bottleneck::Compute, 0.5, Some(8));
        assert_eq!(evidence(&with_line, &profile), "train.py:8 80%");
        let without = share(Bottleneck::Compute, 0.5, None);
        assert_eq!(evidence(&without, &profile), "aten::mm 100%");
    }

    #[test]
    fn memory_is_told_by_when_it_was_made() {
        let mut profile = profile(TRAIN).1;
        assert_eq!(made(&profile), None);
        profile.memory.made =
            MemoryByAge { before: 18_000_000, phases: [0, 90_000_000, 11_000_000, 1_000_000, 0] };
        let expected = "before the iteration 18 MB · forward 90 MB · backward 11 MB";
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
            "GPU at work 62%",
            "FP32 50% of the peak",
            "bandwidth 20% of the peak",
            "tensor cores used in 75% of its products",
            "120 launches take the host 1.0 ms",
            "copies to the GPU 12 MB in 2.0 ms",
            "communication 10 ms, 40% of it exposed",
        ];
        assert_eq!(facts(&part, 100e6, &profile, true), expected);
        let on_cpu = Utilization { operator_ns: 80e6, ..Utilization::default() };
        assert_eq!(facts(&on_cpu, 100e6, &profile, false), ["80% in operators"]);
        let of_ranks = Utilization { exposed_communication_ns: 15e6, ..on_cpu };
        assert_eq!(
            facts(&of_ranks, 100e6, &profile, false),
            ["80% in operators", "15% waiting for other ranks"]
        );
        let hidden = Utilization { communication_ns: 40e6, ..of_ranks };
        assert_eq!(
            facts(&hidden, 100e6, &profile, false)[1..],
            ["15% waiting for other ranks", "25% exchanging beside its work"]
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
