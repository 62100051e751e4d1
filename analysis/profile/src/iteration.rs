//! [`IterationCost`]: the headline numbers of a profile.

use super::slow_iterations::SlowIterations;
use super::{FileId, PhaseTimes};

/// The tensor shapes from which a batch size was inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSource {
    /// The shapes of the loader's batch, if the loader declares no batch size.
    Loader,
    /// The shapes of the largest batch, if several loaders return batches of different sizes.
    Loaders,
    /// The shapes of the outermost module's inputs.
    Input,
}

impl BatchSource {
    /// Returns the name for display.
    pub fn name(self) -> &'static str {
        match self {
            BatchSource::Loader => "the loader's batch",
            BatchSource::Loaders => "the largest of its loaders' batches",
            BatchSource::Input => "the model's input",
        }
    }
}

/// The headline numbers: the cost of one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IterationCost {
    /// Nanoseconds per iteration without the profiler: the median of [`Self::timed_ns`], or
    /// [`SlowIterations::time_ns`] if some iterations are slow. The costs of lines add up to it.
    pub time_ns: f64,
    /// The time of every unprofiled iteration in nanoseconds, in order.
    pub timed_ns: Vec<f64>,
    /// The pattern of slow iterations; `None` if no iterations are slow.
    pub slow: Option<SlowIterations>,
    /// `time_ns` by phase; the sum equals `time_ns`.
    pub phases: PhaseTimes,
    /// The time of each phase in each profiled iteration, like [`Sample`](super::Sample) for a
    /// line.
    pub phase_samples: Vec<PhaseTimes>,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// The source of an inferred batch size; `None` if the batch size is certain.
    pub batch_guessed_from: Option<BatchSource>,
    /// The line of the training loop, if it is known.
    pub loop_line: Option<(FileId, u32)>,
    /// How iterations were detected: `optimizer`, `backward`, `module`, `provider`.
    pub found_by: String,
    /// Whether the batch is counted in tokens: each iteration appends one token to every sequence.
    pub counts_tokens: bool,
    /// Whether the program has only one iteration. Its time includes one-time work.
    pub is_first: bool,
    /// The share of the timed iterations for which the training thread waited for the CPU, because other programs used
    /// it; 0 if unknown.
    pub waited_share: f64,
}

/// From this share on, waiting for the CPU makes times unreliable.
pub const BUSY_SHARE: f64 = 0.1;
/// The beginning of the note that says so.
pub const BUSY_NOTE: &str = "The machine was busy: ";

impl IterationCost {
    /// Whether other programs slowed the timed iterations down.
    pub fn is_of_busy_machine(&self) -> bool {
        self.waited_share >= BUSY_SHARE
    }

    /// Returns the mean nanoseconds per iteration, slow iterations included.
    pub fn mean_ns(&self) -> f64 {
        self.slow.as_ref().map_or(self.time_ns, |slow| slow.mean_ns)
    }

    /// Returns the nanoseconds of an iteration that is not slow.
    pub fn typical_ns(&self) -> f64 {
        self.slow.as_ref().map_or(self.time_ns, |slow| slow.typical_ns)
    }

    /// Returns the nanoseconds of each timed iteration that is not slow.
    pub fn typical_times(&self) -> Vec<f64> {
        let most =
            self.slow.as_ref().map_or(f64::INFINITY, |slow| slow.typical_ns.midpoint(slow.slow_ns));
        self.timed_ns.iter().copied().filter(|time_ns| *time_ns < most).collect()
    }

    /// Returns times whose median is [`Self::time_ns`]: of each iteration, or the mean of each
    /// whole period.
    pub fn comparable_times(&self) -> Vec<f64> {
        let Some(period) =
            self.slow.as_ref().filter(|slow| slow.are_whole_periods).and_then(|it| it.period)
        else {
            return self.typical_times();
        };
        let periods = self.timed_ns.rchunks_exact((period as usize).max(1));
        periods.map(|times| times.iter().sum::<f64>() / times.len() as f64).collect()
    }

    /// Returns the unit of [`Self::samples_per_second`]: `samples/s`, or `tokens/s` for a program
    /// that generates text.
    pub fn rate_unit(&self) -> &'static str {
        if self.counts_tokens { "tokens/s" } else { "samples/s" }
    }

    /// Returns samples per second of wall time, slow iterations included, if the batch size is
    /// known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let (batch, mean_ns) = (self.batch_size? as f64, self.mean_ns());
        (mean_ns > 0.0).then(|| batch / (mean_ns / 1e9))
    }
}
