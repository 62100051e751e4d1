//! Memory over the iteration, with an explanation of its peak.

use serde::Serialize;

use super::{Place, name};
use crate::share::{share_of, share_of_peak};
use ridgeline_base::units;
use ridgeline_profile::{FileId, LineCost, MemoryByKind, MemoryCost, Phase, Profile};

/// The maximum number of lines listed.
const MAX_HOLDERS: usize = 20;
/// From this share of device memory on, the explanation mentions the capacity.
const TIGHT_SHARE: f64 = 0.5;

/// Memory of one iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    peak_bytes: u64,
    capacity_bytes: Option<u64>,
    peak_at_ns: u64,
    duration_ns: u64,
    curve: Vec<(u64, u64)>,
    at_peak: Vec<KindBytes>,
    holders: Vec<Holder>,
    tensors: Vec<Tensor>,
    pub(super) explanation: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct KindBytes {
    kind: &'static str,
    bytes: u64,
}

/// A tensor's memory over the iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Tensor {
    bytes: u64,
    /// Nanoseconds since the iteration began; null if it was allocated before.
    allocated_ns: Option<u64>,
    /// Null if it outlives the iteration.
    freed_ns: Option<u64>,
    kind: &'static str,
    /// The line that allocated it, or that created the module which owns it: `model.py:41`.
    name: Option<String>,
    place: Option<Place>,
}

/// A line that holds memory at the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// `model.py:41`.
    pub name: String,
    /// The enclosing function.
    pub detail: String,
    /// Bytes that the line allocated, or that modules created there own.
    pub bytes: u64,
    /// The kind with most bytes.
    pub kind: &'static str,
    pub place: Option<Place>,
}

/// Returns `None` if no memory was recorded.
pub(super) fn memory(profile: &Profile) -> Option<Memory> {
    let memory = &profile.memory;
    if memory.peak_bytes == 0 {
        return None;
    }
    let holders = holders(profile);
    let named = memory.at_peak.named().into_iter().filter(|(_, bytes)| *bytes > 0);
    let mut at_peak: Vec<KindBytes> =
        named.map(|(kind, bytes)| KindBytes { kind, bytes }).collect();
    at_peak.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
    let end_ns = memory.curve.last().map_or(0, |(time_ns, _)| *time_ns);
    Some(Memory {
        peak_bytes: memory.peak_bytes,
        capacity_bytes: memory.capacity_bytes,
        peak_at_ns: memory.peak_at_ns,
        duration_ns: memory.recorded_ns.max(end_ns).max(memory.peak_at_ns),
        curve: memory.curve.clone(),
        tensors: tensors(profile),
        explanation: explanation(profile, &holders),
        at_peak,
        holders,
    })
}

fn tensors(profile: &Profile) -> Vec<Tensor> {
    let tensors = profile.memory.tensors.iter().map(|tensor| {
        let line = tensor.line.and_then(|(file, line)| {
            let path = &profile.files.get(file.0 as usize)?.path;
            Some((name(&format!("{path}:{line}")), Place::of(profile, file, line)))
        });
        let (name, place) = line.map_or((None, None), |(name, place)| (Some(name), place));
        Tensor {
            bytes: tensor.bytes,
            allocated_ns: tensor.allocated_ns,
            freed_ns: tensor.freed_ns,
            kind: tensor.kind,
            name,
            place,
        }
    });
    tensors.collect()
}

fn holders(profile: &Profile) -> Vec<Holder> {
    let files = (0_u32..).map(FileId).zip(&profile.files).zip(&profile.lines);
    let mut lines: Vec<(FileId, &str, &LineCost)> = files
        .flat_map(|((id, file), lines)| lines.iter().map(move |line| (id, &*file.path, line)))
        .filter(|(_, _, line)| line.self_memory.total() > 0)
        .collect();
    lines.sort_by_key(|(_, _, line)| std::cmp::Reverse(line.self_memory.total()));
    lines
        .into_iter()
        .take(MAX_HOLDERS)
        .map(|(file, path, line)| Holder {
            name: name(&format!("{path}:{}", line.line)),
            detail: match line.scope.as_str() {
                "" => created_modules(profile, file, line.line),
                scope => name(scope),
            },
            bytes: line.self_memory.total(),
            kind: largest(&line.self_memory).0,
            place: Place::of(profile, file, line.line),
        })
        .collect()
}

/// `creates Linear`, `creates 4 Linear`: the detail of a line that did not run in the iteration.
fn created_modules(profile: &Profile, file: FileId, line: u32) -> String {
    let created =
        profile.modules.iter().filter(|module| module.definition.first() == Some(&(file, line)));
    let mut types = created.map(|module| module.type_name.as_str());
    let Some(first) = types.next() else { return String::new() };
    let (alike, others): (Vec<&str>, Vec<&str>) = types.partition(|other| *other == first);
    let number = match alike.len() {
        0 => String::new(),
        more => format!("{} ", more + 1),
    };
    let more = if others.is_empty() { "" } else { " and others" };
    name(&format!("creates {number}{first}{more}"))
}

/// The kind with most bytes; of equal ones, the one shown first.
fn largest(memory: &MemoryByKind) -> (&'static str, u64) {
    let named = memory.named();
    named.into_iter().rev().max_by_key(|(_, bytes)| *bytes).unwrap_or(("other", 0))
}

/// Explains when the peak occurs, which kind of memory dominates and what it depends on, and which
/// line holds most.
fn explanation(profile: &Profile, holders: &[Holder]) -> String {
    let mut sentences = vec![time_of_peak(profile), dominant_kind(profile)];
    sentences.extend(holders.first().map(|holder| largest_holder(profile, holder)));
    sentences.extend(share_of_capacity(&profile.memory));
    sentences.join(" ")
}

fn time_of_peak(profile: &Profile) -> String {
    let memory = &profile.memory;
    // A trace from another profiler has no detected iteration: its memory covers the whole trace.
    let period = if profile.iteration.found_by.is_empty() { "recording" } else { "iteration" };
    let peak = units::bytes(memory.peak_bytes as f64);
    if memory.peak_at_ns == 0 {
        return format!("Memory peaks at {peak} at the start of the {period}.");
    }
    let phase = match memory.peak_phase {
        Some(Phase::Data) => " during data loading",
        Some(Phase::Forward) => " during the forward pass",
        Some(Phase::Backward) => " during the backward pass",
        Some(Phase::Optimizer) => " during the optimizer step",
        Some(Phase::Other) => " between phases",
        None => "",
    };
    let into = units::percent(share_of(memory.peak_at_ns as f64, memory.recorded_ns as f64));
    match memory.curve.first() {
        Some((_, bytes)) if *bytes > 0 => {
            let start = units::bytes(*bytes as f64);
            format!("The {period} starts at {start} and peaks at {peak}{phase}, {into} into it.")
        }
        _ => format!("Memory peaks at {peak}{phase}, {into} into the {period}."),
    }
}

fn dominant_kind(profile: &Profile) -> String {
    let (kind, bytes) = largest(&profile.memory.at_peak);
    let share = units::percent(share_of_peak(bytes, profile));
    let bytes = units::bytes(bytes as f64);
    let has_backward = profile.iteration.phases.backward > 0.0;
    let description = match kind {
        "weights" => "are weights, independent of batch size",
        "gradients" => {
            "are gradients, as large as the trainable weights and independent of batch size"
        }
        "optimizer state" => "is optimizer state, independent of batch size",
        "activations" if has_backward => {
            "are activations saved by the forward pass for the backward pass; most of them grow \
            with batch size"
        }
        "activations" => {
            "are activations held by the forward pass; most of them grow with batch size"
        }
        "batch" => "is the batch from the DataLoader",
        "temporaries" => "are temporaries that live within one op or between two",
        _ => {
            "was allocated before the iteration and is not weights, gradients, optimizer state or \
            batch"
        }
    };
    format!("{bytes} ({share}) of peak memory {description}.")
}

fn largest_holder(profile: &Profile, holder: &Holder) -> String {
    let within = match holder.detail.as_str() {
        "" => String::new(),
        makes if makes.starts_with("creates ") => format!(" (it {makes})"),
        scope => format!(" in {scope}"),
    };
    format!(
        "The line that holds most is {}{within}: {} ({} of the peak), mostly {}.",
        holder.name,
        units::bytes(holder.bytes as f64),
        units::percent(share_of_peak(holder.bytes, profile)),
        holder.kind,
    )
}

/// The share of the capacity, if memory is tight.
fn share_of_capacity(memory: &MemoryCost) -> Option<String> {
    let capacity = memory.capacity_bytes.filter(|capacity| *capacity > 0)?;
    let share = share_of(memory.peak_bytes as f64, capacity as f64);
    (share >= TIGHT_SHARE).then(|| {
        format!(
            "Peak memory is {} of the device's {}.",
            units::percent(share),
            units::bytes(capacity as f64)
        )
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use ridgeline_compare::fixture::{TRAIN, profile};

    #[track_caller]
    fn check(change: impl FnOnce(&mut Profile), expected: Expect) {
        let (_, mut profile) = profile(TRAIN);
        profile.iteration.found_by = "optimizer".to_owned();
        profile.memory.recorded_ns = 120_000_000;
        profile.memory.peak_at_ns = 36_000_000;
        profile.memory.peak_phase = Some(Phase::Backward);
        profile.memory.curve = vec![(0, 30_000_000), (36_000_000, 120_000_000)];
        change(&mut profile);
        let memory = memory(&profile).expect("memory");
        expected.assert_eq(&memory.explanation);
    }

    #[test]
    fn activations() {
        check(
            |_| (),
            expect![
                "The iteration starts at 30 MB and peaks at 120 MB during the backward pass, 30% into it. 90 MB (75%) of peak memory are activations saved by the forward pass for the backward pass; most of them grow with batch size. The line that holds most is train.py:8: 80 MB (67% of the peak), mostly activations."
            ],
        );
    }

    #[test]
    fn a_trace_without_iterations() {
        check(
            |profile| profile.iteration.found_by.clear(),
            expect![
                "The recording starts at 30 MB and peaks at 120 MB during the backward pass, 30% into it. 90 MB (75%) of peak memory are activations saved by the forward pass for the backward pass; most of them grow with batch size. The line that holds most is train.py:8: 80 MB (67% of the peak), mostly activations."
            ],
        );
    }

    #[test]
    fn no_backward_pass() {
        let inference = |profile: &mut Profile| {
            profile.iteration.phases.backward = 0.0;
            profile.memory.peak_phase = Some(Phase::Forward);
        };
        check(
            inference,
            expect![
                "The iteration starts at 30 MB and peaks at 120 MB during the forward pass, 30% into it. 90 MB (75%) of peak memory are activations held by the forward pass; most of them grow with batch size. The line that holds most is train.py:8: 80 MB (67% of the peak), mostly activations."
            ],
        );
    }

    #[test]
    fn weights_that_hardly_fit() {
        let weights = |profile: &mut Profile| {
            profile.memory.capacity_bytes = Some(130_000_000);
            profile.memory.at_peak =
                MemoryByKind { weights: 119_000_000, batch: 1_000_000, ..MemoryByKind::default() };
            profile.memory.peak_at_ns = 0;
            for line in profile.lines.iter_mut().flatten() {
                line.self_memory = MemoryByKind::default();
            }
            profile.lines[0][0].self_memory.weights = 119_000_000;
            profile.lines[0][0].line = 4;
        };
        check(
            weights,
            expect![
                "Memory peaks at 120 MB at the start of the iteration. 119 MB (99%) of peak memory are weights, independent of batch size. The line that holds most is train.py:4 (it creates Conv2d): 119 MB (99% of the peak), mostly weights. Peak memory is 92% of the device's 130 MB."
            ],
        );
    }

    #[test]
    fn unknown_memory() {
        let unknown = |profile: &mut Profile| {
            profile.memory.at_peak = MemoryByKind { other: 120_000_000, ..MemoryByKind::default() };
            profile.memory.peak_phase = None;
            profile.lines.clear();
        };
        check(
            unknown,
            expect![
                "The iteration starts at 30 MB and peaks at 120 MB, 30% into it. 120 MB (100%) of peak memory was allocated before the iteration and is not weights, gradients, optimizer state or batch."
            ],
        );
    }

    #[test]
    fn a_line_that_creates_modules_lists_them() {
        let (_, mut profile) = profile(TRAIN);
        assert_eq!(created_modules(&profile, FileId(0), 4), "creates Conv2d");
        let mut linear = profile.modules[2].clone();
        linear.definition = profile.modules[1].definition.clone();
        profile.modules.push(profile.modules[1].clone());
        assert_eq!(created_modules(&profile, FileId(0), 4), "creates 2 Conv2d");
        profile.modules.push(linear);
        assert_eq!(created_modules(&profile, FileId(0), 4), "creates 2 Conv2d and others");
        assert_eq!(created_modules(&profile, FileId(0), 99), "");
    }
}
