//! [`Phase`] and times by phase.

use std::ops::{Add, AddAssign};

/// A part of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waiting for the data loader.
    Data,
    /// Operators that build the loss.
    Forward,
    /// Operators that autograd runs, gradient accumulation included.
    Backward,
    /// `optimizer.step()` and `zero_grad()`.
    Optimizer,
    /// Everything else: logging, copies between phases, Python.
    #[default]
    Other,
}

impl Phase {
    /// All phases, in display order.
    pub const ALL: [Phase; 5] =
        [Phase::Data, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Other];

    /// The phase's name in lower case: `forward`.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Data => "data",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
            Phase::Other => "other",
        }
    }
}

/// Time by phase, in nanoseconds per iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseTimes {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub optimizer: f64,
    pub other: f64,
}

impl PhaseTimes {
    /// Returns the sum over all phases, in nanoseconds.
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.optimizer + self.other
    }

    /// Returns the time of one phase, in nanoseconds.
    pub fn get(&self, phase: Phase) -> f64 {
        match phase {
            Phase::Data => self.data,
            Phase::Forward => self.forward,
            Phase::Backward => self.backward,
            Phase::Optimizer => self.optimizer,
            Phase::Other => self.other,
        }
    }

    /// Returns the time of one phase for modification.
    pub fn get_mut(&mut self, phase: Phase) -> &mut f64 {
        match phase {
            Phase::Data => &mut self.data,
            Phase::Forward => &mut self.forward,
            Phase::Backward => &mut self.backward,
            Phase::Optimizer => &mut self.optimizer,
            Phase::Other => &mut self.other,
        }
    }
}

impl Add for PhaseTimes {
    type Output = PhaseTimes;
    fn add(mut self, other: PhaseTimes) -> PhaseTimes {
        self += other;
        self
    }
}

impl AddAssign for PhaseTimes {
    fn add_assign(&mut self, other: PhaseTimes) {
        self.data += other.data;
        self.forward += other.forward;
        self.backward += other.backward;
        self.optimizer += other.optimizer;
        self.other += other.other;
    }
}
