//! Memory over the iteration, and in words why its peak is what it is.

use serde::Serialize;

use super::{Place, name};
use crate::present::page::count;
use crate::present::share::{share_of, share_of_peak};
use crate::profile::{FileId, LineCost, MemoryByKind, MemoryCost, Phase, Profile};
use crate::units;

/// How many lines are named.
const MOST_HOLDERS: usize = 20;

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
    explanation: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct KindBytes {
    kind: &'static str,
    bytes: u64,
}

/// A line that holds memory at the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// `model.py:41`.
    pub name: String,
    /// The function around it.
    pub detail: String,
    /// Bytes that it made, or that the modules which it made own.
    pub bytes: u64,
    /// What most of them are.
    pub kind: &'static str,
    /// Where it stands.
    pub place: Option<Place>,
}

/// Nothing where no memory was recorded.
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
        explanation: explanation(profile, &at_peak, &holders),
        at_peak,
        holders,
    })
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
        .take(MOST_HOLDERS)
        .map(|(file, path, line)| Holder {
            name: name(&format!("{path}:{}", line.line)),
            detail: name(&line.scope),
            bytes: line.self_memory.total(),
            kind: largest(&line.self_memory),
            place: Place::of(profile, file, line.line),
        })
        .collect()
}

fn largest(memory: &MemoryByKind) -> &'static str {
    let named = memory.named();
    let largest = named.iter().rev().max_by_key(|(_, bytes)| *bytes);
    largest.map_or("other", |(kind, _)| kind)
}

/// Sentences that say when the peak is, what it consists of, who made most of it, and what that
/// depends on where that is a plain fact.
fn explanation(profile: &Profile, at_peak: &[KindBytes], holders: &[Holder]) -> String {
    let mut sentences = vec![when(&profile.memory)];
    if let Some(most) = at_peak.first() {
        sentences.push(what(profile, most));
        sentences.push(why(profile, most.kind));
    }
    if let Some(holder) = holders.first() {
        let share = share_of_peak(holder.bytes, profile);
        sentences.push(format!(
            "The line that holds most is {}: {} of {}{}.",
            holder.name,
            units::bytes(holder.bytes as f64),
            holder.kind,
            if share >= 0.01 {
                format!(" and what belongs to them, {} of the peak", units::percent(share))
            } else {
                String::new()
            }
        ));
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

fn when(memory: &MemoryCost) -> String {
    let peak = units::bytes(memory.peak_bytes as f64);
    let share = share_of(memory.peak_at_ns as f64, memory.recorded_ns as f64);
    let phase = match memory.peak_phase {
        _ if memory.peak_at_ns == 0 => {
            return format!("The peak of {peak} is there from the iteration's start.");
        }
        Some(Phase::Data) => "while data is loaded",
        Some(Phase::Forward) => "in forward",
        Some(Phase::Backward) => "in backward",
        Some(Phase::Optimizer) => "in the optimizer's step",
        Some(Phase::Other) => "between the phases",
        None => "",
    };
    let at = match share {
        _ if memory.recorded_ns == 0 => String::new(),
        share => format!(", {} into the iteration", units::percent(share)),
    };
    format!("The peak of {peak} comes {phase}{at}.")
}

fn what(profile: &Profile, most: &KindBytes) -> String {
    let share = units::percent(share_of_peak(most.bytes, profile));
    let bytes = units::bytes(most.bytes as f64);
    let kind = most.kind;
    let _ = count;
    format!("{bytes} of it, {share}, are {kind}.")
}

fn why(_profile: &Profile, kind: &str) -> String {
    match kind {
        "activations" => "Forward made them and backward needs them; they grow with the batch.",
        "weights" => "They are there whatever the batch.",
        "optimizer state" => "The optimizer keeps it for each parameter, whatever the batch.",
        "gradients" => "They take as much as the parameters, whatever the batch.",
        "batch" => "It grows with the batch.",
        "temporaries" => "They live within one operator or between two.",
        _ => "",
    }
    .to_owned()
}
