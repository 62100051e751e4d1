//! Memory alive at the peak, by line and kind.
//!
//! Fake tensors have the size of each tensor, but not the allocations of kernels (workspaces of
//! cuDNN and oneDNN, the allocator's rounding). That difference was measured once and grows with
//! the tensors, so the estimated peak is scaled by the ratio of the measured to the estimated peak.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use super::lines::{Lines, on_stack};
use ridgeline_operators::op_list::{OpList, PeakAllocation};
use ridgeline_profile::{MemoryByAge, MemoryByKind, Phase, Profile};

/// A field of [`MemoryByKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Weights,
    Gradients,
    OptimizerState,
    Activations,
    Batch,
    Temporaries,
    Other,
}

/// [`MemoryByKind`] in floating point: bytes may be fractions, and negative.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    weights: f64,
    gradients: f64,
    optimizer_state: f64,
    activations: f64,
    batch: f64,
    temporaries: f64,
    other: f64,
}

impl Kinds {
    pub(super) fn by(bytes: impl Fn(Kind) -> f64) -> Kinds {
        Kinds {
            weights: bytes(Kind::Weights),
            gradients: bytes(Kind::Gradients),
            optimizer_state: bytes(Kind::OptimizerState),
            activations: bytes(Kind::Activations),
            batch: bytes(Kind::Batch),
            temporaries: bytes(Kind::Temporaries),
            other: bytes(Kind::Other),
        }
    }

    fn total(&self) -> f64 {
        let Kinds { weights, gradients, optimizer_state, activations, .. } = self;
        let Kinds { batch, temporaries, other, .. } = self;
        weights + gradients + optimizer_state + activations + batch + temporaries + other
    }
}

impl Index<Kind> for Kinds {
    type Output = f64;

    fn index(&self, kind: Kind) -> &f64 {
        match kind {
            Kind::Weights => &self.weights,
            Kind::Gradients => &self.gradients,
            Kind::OptimizerState => &self.optimizer_state,
            Kind::Activations => &self.activations,
            Kind::Batch => &self.batch,
            Kind::Temporaries => &self.temporaries,
            Kind::Other => &self.other,
        }
    }
}

impl IndexMut<Kind> for Kinds {
    fn index_mut(&mut self, kind: Kind) -> &mut f64 {
        match kind {
            Kind::Weights => &mut self.weights,
            Kind::Gradients => &mut self.gradients,
            Kind::OptimizerState => &mut self.optimizer_state,
            Kind::Activations => &mut self.activations,
            Kind::Batch => &mut self.batch,
            Kind::Temporaries => &mut self.temporaries,
            Kind::Other => &mut self.other,
        }
    }
}

/// Memory that belongs to no line.
#[derive(Clone, Debug, Default)]
pub(super) struct PeakMemory {
    /// By kind.
    pub rest: MemoryByKind,
    /// By time of allocation.
    pub rest_by_age: MemoryByAge,
}

/// The memory of an operator list, by line.
#[derive(Default)]
struct MemoryByLine {
    by_line: HashMap<usize, Kinds>,
    rest: Kinds,
    held: Vec<Entry>,
}

/// Memory allocated at one place.
struct Entry {
    /// The stack, innermost first.
    lines: Vec<usize>,
    kind: Kind,
    bytes: f64,
}

/// Sets the memory of the lines; the measured memory if there is no list `now`.
pub(super) fn add(
    lines: &mut Lines,
    old: &Profile,
    before: &OpList,
    now: Option<&OpList>,
) -> PeakMemory {
    let held_before = MemoryByLine::of(before, &lines.of_before, &lines.created_before);
    let held_now = match now {
        Some(now) => MemoryByLine::of(now, &lines.of_now, &lines.created_now),
        None => MemoryByLine::of(before, &lines.of_before, &lines.created_before),
    };
    let now = now.unwrap_or(before);
    let self_before: Vec<Kinds> =
        lines.list.iter().map(|line| of_kinds(&line.cost.self_memory)).collect();
    let zero = Kinds::default();
    let kinds_of =
        |holders: &MemoryByLine, at: usize| holders.by_line.get(&at).copied().unwrap_or(zero);
    let new: Vec<Kinds> = self_before
        .iter()
        .enumerate()
        .map(|(at, own)| scale(own, &kinds_of(&held_before, at), &kinds_of(&held_now, at)))
        .collect();

    // Totals change by the change of the lines below them.
    let explained = held_before.below(&self_before);
    let below_now = held_now.below(&new);
    let mut sum = zero;
    for (at, line) in lines.list.iter_mut().enumerate() {
        let own = new.get(at).copied().unwrap_or(zero);
        let total = of_kinds(&line.cost.total_memory);
        let explained = explained.get(&at).copied().unwrap_or(zero);
        let now = below_now.get(&at).copied().unwrap_or(zero);
        let total = Kinds::by(|kind| (total[kind] + now[kind] - explained[kind]).max(own[kind]));
        let made = ages(&line.cost.self_memory_made, &own);
        line.hold(to_kinds(&own), made, to_kinds(&total));
        add_to(&mut sum, &own);
    }

    let mut line_sum = zero;
    old.lines.iter().flatten().for_each(|line| add_to(&mut line_sum, &of_kinds(&line.self_memory)));
    let at_peak = of_kinds(&old.memory.at_peak);
    let rest = Kinds::by(|kind| (at_peak[kind] - line_sum[kind]).max(0.0));
    let mut rest = scale(&rest, &held_before.rest, &held_now.rest);
    if let Some(peak) = peak(old, before, now) {
        let parts: f64 = sum.total() + rest.total();
        settle(&mut rest, peak - parts);
    }
    let rest_made = ages(&MemoryByAge::default(), &rest);
    PeakMemory { rest: to_kinds(&rest), rest_by_age: rest_made }
}

/// The peak: the estimate, corrected by the ratio of the measurement to the estimate of the
/// measured text.
fn peak(old: &Profile, before: &OpList, now: &OpList) -> Option<f64> {
    let now = now.memory.as_ref()?.peak_bytes as f64;
    let before = before.memory.as_ref().map_or(0.0, |memory| memory.peak_bytes as f64);
    let measured = old.memory.peak_bytes as f64;
    Some(if before > 0.0 && measured > 0.0 { now * measured / before } else { now })
}

/// Makes the parts add up to the peak: missing bytes are added to `other`, and excess bytes are
/// taken from the memory without a line, starting with `other`.
fn settle(rest: &mut Kinds, mut missing: f64) {
    let order = [
        Kind::Other,
        Kind::Temporaries,
        Kind::Activations,
        Kind::Batch,
        Kind::Gradients,
        Kind::OptimizerState,
        Kind::Weights,
    ];
    if missing > 0.0 {
        rest.other += missing;
    }
    for kind in order {
        let excess = (-missing).clamp(0.0, rest[kind]);
        rest[kind] -= excess;
        missing += excess;
    }
}

impl MemoryByLine {
    /// Assigns memory that a module owns to the line that created the module, and all other memory
    /// to the line that allocated it.
    fn of(list: &OpList, lines: &[Option<usize>], created: &[Vec<usize>]) -> MemoryByLine {
        let mut by_line = MemoryByLine::default();
        for held in list.memory.iter().flat_map(|memory| &memory.at_peak) {
            let kind = kind_of(held);
            let module = held.module.filter(|_| OWNED.contains(&kind));
            let lines = match module.and_then(|at| created.get(at as usize)) {
                Some(created) if !created.is_empty() => created.clone(),
                _ => on_stack(list, lines, held.stack),
            };
            let bytes = held.bytes as f64;
            let kinds = match lines.first() {
                Some(line) => by_line.by_line.entry(*line).or_default(),
                None => &mut by_line.rest,
            };
            kinds[kind] += bytes;
            by_line.held.push(Entry { lines, kind, bytes });
        }
        by_line
    }

    /// Returns the memory alive at the peak and allocated at a line or below it, as far as the list
    /// explains it, if each line itself holds `own`.
    fn below(&self, own: &[Kinds]) -> HashMap<usize, Kinds> {
        let mut found: HashMap<usize, Kinds> = HashMap::new();
        for Entry { lines, kind, bytes } in &self.held {
            let Some(innermost) = lines.first() else { continue };
            let line_bytes = self.by_line.get(innermost).map_or(0.0, |kinds| kinds[*kind]);
            let share = if line_bytes > 0.0 { bytes / line_bytes } else { 0.0 };
            let bytes = share * own.get(*innermost).map_or(0.0, |kinds| kinds[*kind]);
            for (at, line) in lines.iter().enumerate() {
                // A line may be on a stack twice.
                if !lines.iter().take(at).any(|before| before == line) {
                    found.entry(*line).or_default()[*kind] += bytes;
                }
            }
        }
        found
    }
}

/// The kinds of memory that a module owns.
const OWNED: [Kind; 3] = [Kind::Weights, Kind::Gradients, Kind::OptimizerState];

/// Scales the measured bytes by the ratio of both estimates.
pub(super) fn scale(old: &Kinds, before: &Kinds, now: &Kinds) -> Kinds {
    Kinds::by(|kind| {
        let (old, before, now) = (old[kind], before[kind], now[kind]);
        if before > 0.0 && old > 0.0 {
            old * now / before
        } else if before > 0.0 {
            // The measurement has this memory elsewhere, but an increase is still new memory.
            (now - before).max(0.0)
        } else {
            old + now
        }
    })
}

/// Returns the kind; the names are those of the agent.
pub(super) fn kind_of(held: &PeakAllocation) -> Kind {
    match held.kind.as_str() {
        "weight" | "buffer" => Kind::Weights,
        "gradient" => Kind::Gradients,
        "optimizer_state" => Kind::OptimizerState,
        "activation" => Kind::Activations,
        "batch" => Kind::Batch,
        "temporary" => Kind::Temporaries,
        _ => Kind::Other,
    }
}

pub(super) fn of_kinds(memory: &MemoryByKind) -> Kinds {
    let MemoryByKind {
        weights,
        gradients,
        optimizer_state,
        activations,
        batch,
        temporaries,
        other,
    } = *memory;
    Kinds {
        weights: weights as f64,
        gradients: gradients as f64,
        optimizer_state: optimizer_state as f64,
        activations: activations as f64,
        batch: batch as f64,
        temporaries: temporaries as f64,
        other: other as f64,
    }
}

pub(super) fn to_kinds(kinds: &Kinds) -> MemoryByKind {
    // The cast saturates, and NaN becomes 0.
    let rounded = |bytes: f64| bytes.round() as u64;
    MemoryByKind {
        weights: rounded(kinds.weights),
        gradients: rounded(kinds.gradients),
        optimizer_state: rounded(kinds.optimizer_state),
        activations: rounded(kinds.activations),
        batch: rounded(kinds.batch),
        temporaries: rounded(kinds.temporaries),
        other: rounded(kinds.other),
    }
}

pub(super) fn add_to(sum: &mut Kinds, kinds: &Kinds) {
    *sum = Kinds::by(|kind| sum[kind] + kinds[kind]);
}

/// Splits the bytes of a line by time of allocation: in the measured proportions, or by the usual
/// phase of each kind.
fn ages(before: &MemoryByAge, kinds: &Kinds) -> MemoryByAge {
    let now = to_kinds(kinds);
    let (old, new) = (before.total(), now.total());
    let mut ages = MemoryByAge::default();
    if old == 0 {
        ages.before = now.weights.saturating_add(now.optimizer_state).saturating_add(now.other);
        *ages.get_mut(Some(Phase::Data)) = now.batch;
        *ages.get_mut(Some(Phase::Forward)) = now.activations;
        *ages.get_mut(Some(Phase::Backward)) = now.gradients.saturating_add(now.temporaries);
        return ages;
    }
    let scaled = |bytes: u64| (bytes as f64 * (new as f64 / old as f64)) as u64;
    ages.before = scaled(before.before);
    for (ages, before) in ages.phases.iter_mut().zip(before.phases) {
        *ages = scaled(before);
    }
    // Add the bytes lost in rounding to the largest part.
    let missing = new.saturating_sub(ages.total());
    let largest = ages.phases.iter_mut().chain([&mut ages.before]).max();
    if let Some(largest) = largest {
        *largest = largest.saturating_add(missing);
    }
    // Floating-point rounding may also give a few bytes too many.
    let mut over = ages.total().saturating_sub(new);
    for part in ages.phases.iter_mut().chain([&mut ages.before]) {
        let taken = over.min(*part);
        *part -= taken;
        over -= taken;
    }
    ages
}
