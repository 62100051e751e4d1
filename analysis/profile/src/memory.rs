//! [`MemoryCost`]: memory at the peak of an iteration, by kind and by time of allocation.

use std::ops::AddAssign;

use super::{FileId, Phase};

/// Memory allocated at the peak by data structure, in bytes. The sum over all lines, plus memory
/// without a line, equals [`MemoryCost::peak_bytes`] exactly, so the fields are integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryByKind {
    /// Parameters and buffers of modules.
    pub weights: u64,
    /// `.grad` of parameters.
    pub gradients: u64,
    /// The optimizer's state of each parameter.
    pub optimizer_state: u64,
    /// Outputs of forward operators that autograd still needs at the peak.
    pub activations: u64,
    /// The batch from the data loader.
    pub batch: u64,
    /// Memory that lives within one operator or between two (workspaces, gradients of activations).
    pub temporaries: u64,
    /// Allocated before the iteration and none of the above.
    pub other: u64,
}

impl MemoryByKind {
    /// Returns the sum over all kinds, in bytes.
    pub fn total(&self) -> u64 {
        self.named().iter().fold(0, |sum, (_, bytes)| bytes.saturating_add(sum))
    }

    /// Returns the kinds with their names, in display order.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
            ("activations", self.activations),
            ("batch", self.batch),
            ("temporaries", self.temporaries),
            ("other", self.other),
        ]
    }
}

impl AddAssign for MemoryByKind {
    fn add_assign(&mut self, other: MemoryByKind) {
        self.weights = self.weights.saturating_add(other.weights);
        self.gradients = self.gradients.saturating_add(other.gradients);
        self.optimizer_state = self.optimizer_state.saturating_add(other.optimizer_state);
        self.activations = self.activations.saturating_add(other.activations);
        self.batch = self.batch.saturating_add(other.batch);
        self.temporaries = self.temporaries.saturating_add(other.temporaries);
        self.other = self.other.saturating_add(other.other);
    }
}

/// Memory allocated at the peak by time of allocation, in bytes. The sum equals that of the owner's
/// [`MemoryByKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryByAge {
    /// Allocated before the iteration: weights, optimizer state, gradients that were not freed.
    pub before: u64,
    /// Allocated in the iteration, by phase in the order of [`Phase::ALL`].
    pub phases: [u64; 5],
}

impl MemoryByAge {
    /// Returns the bytes that a phase allocated, or for `None`, those allocated before the
    /// iteration.
    pub fn get(&self, phase: Option<Phase>) -> u64 {
        let mut made = *self;
        *made.get_mut(phase)
    }

    /// Like [`Self::get`], for modification.
    pub fn get_mut(&mut self, phase: Option<Phase>) -> &mut u64 {
        let [data, forward, backward, optimizer, other] = &mut self.phases;
        match phase {
            None => &mut self.before,
            Some(Phase::Data) => data,
            Some(Phase::Forward) => forward,
            Some(Phase::Backward) => backward,
            Some(Phase::Optimizer) => optimizer,
            Some(Phase::Other) => other,
        }
    }

    /// Returns the sum, in bytes.
    pub fn total(&self) -> u64 {
        self.phases.iter().fold(self.before, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl AddAssign for MemoryByAge {
    fn add_assign(&mut self, other: MemoryByAge) {
        self.before = self.before.saturating_add(other.before);
        for (sum, bytes) in self.phases.iter_mut().zip(other.phases) {
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// Memory at the peak of the iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCost {
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// Memory capacity of the device (or the machine) in bytes.
    pub capacity_bytes: Option<u64>,
    /// Memory at the peak by kind; the sum equals `peak_bytes`.
    pub at_peak: MemoryByKind,
    /// Memory over time as `(nanoseconds since the iteration began, bytes)`, downsampled to a few
    /// hundred points.
    pub curve: Vec<(u64, u64)>,
    /// Time of the peak, in nanoseconds since the iteration began.
    pub peak_at_ns: u64,
    /// The phase of the peak, if it is known.
    pub peak_phase: Option<Phase>,
    /// Duration of the iteration whose memory this is, in nanoseconds. It was profiled, so it is
    /// longer than [`IterationCost::time_ns`](super::IterationCost::time_ns); `curve` and
    /// `peak_at_ns` use its time.
    pub recorded_ns: u64,
    /// Memory at the peak by time of allocation; the sum equals `peak_bytes`.
    pub by_age: MemoryByAge,
    /// The largest tensors of the iteration, in the order of their allocation. What `curve` has beyond
    /// them are smaller ones and the allocator's own.
    pub tensors: Vec<TensorMemory>,
}

/// The lifetime of a tensor's memory within the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMemory {
    pub bytes: u64,
    /// When it was allocated, in nanoseconds since the iteration began; `None` if it was before.
    pub allocated_ns: Option<u64>,
    /// When it was freed; `None` if it outlives the iteration.
    pub freed_ns: Option<u64>,
    /// As in [`MemoryByKind::named`].
    pub kind: &'static str,
    /// The line that allocated it, or that created the module which owns it.
    pub line: Option<(FileId, u32)>,
}
