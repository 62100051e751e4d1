//! A [`Profile`]: what one iteration of a training loop costs, by line, module and kernel.
//!
//! It is the contract between attribution (which makes it), presentation (which shows it) and the
//! server (which keeps the newest one). Times are nanoseconds of one iteration (the median, or the
//! mean of whole periods where some iterations are slow), sizes are
//! bytes at the moment of peak memory. The JSON that `--json` writes is made from it in
//! `present/json.rs`.
//!
//! It is plain data and knows nobody: who works a part of it out depends on it, not the other way
//! round. A test holds that.

pub mod bottleneck;
pub mod day;
pub mod exchange;
pub mod ranks;
pub mod side_effects;
pub mod since;
pub mod slow_iterations;
pub mod utilization;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};
use std::sync::Arc;

use bottleneck::Bottleneck;
use day::Day;
use exchange::Exchange;
use ranks::Ranks;
use side_effects::SideEffects;
use since::Since;
use slow_iterations::SlowIterations;
use utilization::{Metrics, Utilization};

/// Where a number comes from. It is part of what is shown: `~` for estimates, faded for stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provenance {
    /// Measured by a run of this very text.
    #[default]
    Measured,
    /// Computed rather than measured, or a measured total split by an estimated share.
    Estimated,
    /// Measured, but the statement has changed since.
    Stale,
}

/// Index into [`Profile::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Index into [`Profile::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// The part of an iteration that something belongs to.
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
    /// All phases, in the order in which they are shown.
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

/// Time by phase, in nanoseconds of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseTimes {
    /// Nanoseconds of waiting for data.
    pub data: f64,
    /// Nanoseconds of forward work.
    pub forward: f64,
    /// Nanoseconds of backward work.
    pub backward: f64,
    /// Nanoseconds of optimizer work.
    pub optimizer: f64,
    /// Nanoseconds of anything else.
    pub other: f64,
}

impl PhaseTimes {
    /// The sum over phases, in nanoseconds.
    pub fn total(&self) -> f64 {
        self.data + self.forward + self.backward + self.optimizer + self.other
    }

    /// The time of one phase, in nanoseconds.
    pub fn get(&self, phase: Phase) -> f64 {
        match phase {
            Phase::Data => self.data,
            Phase::Forward => self.forward,
            Phase::Backward => self.backward,
            Phase::Optimizer => self.optimizer,
            Phase::Other => self.other,
        }
    }

    /// The time of one phase, to add to.
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

/// Memory that is alive at the peak, by data structure, in bytes. The sum over all lines, plus what
/// has no line, equals [`MemoryCost::peak_bytes`] exactly, so these are whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryByKind {
    /// Parameters and buffers of modules.
    pub weights: u64,
    /// `.grad` of parameters.
    pub gradients: u64,
    /// What the optimizer keeps for each parameter.
    pub optimizer_state: u64,
    /// What forward operators made and autograd still needs at the peak.
    pub activations: u64,
    /// The batch that the loader gave.
    pub batch: u64,
    /// What lives within one operator or between two (workspaces, gradients of activations).
    pub temporaries: u64,
    /// Alive before the iteration and none of the above.
    pub other: u64,
}

impl MemoryByKind {
    /// The sum over kinds, in bytes.
    pub fn total(&self) -> u64 {
        self.named().iter().fold(0, |sum, (_, bytes)| bytes.saturating_add(sum))
    }

    /// Kinds by name, in the order in which they are shown.
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

/// Memory that is alive at the peak, by when it was made, in bytes. The sum is that of
/// [`MemoryByKind`] for the same owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryByAge {
    /// Older than the iteration: weights, what the optimizer keeps, gradients that were not freed.
    pub before: u64,
    /// Made in the iteration, by phase in the order of [`Phase::ALL`].
    pub phases: [u64; 5],
}

impl MemoryByAge {
    /// Bytes that a phase of the iteration made; for no phase, those that are older.
    pub fn get(&self, phase: Option<Phase>) -> u64 {
        let mut made = *self;
        *made.get_mut(phase)
    }

    /// The same, to add to.
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

    /// The sum, in bytes.
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

/// What ran the iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// As its maker calls it: `NVIDIA H200`, or the processor's name; `unknown` where not recorded.
    pub name: String,
    /// `cpu`, `cuda` or `rocm`.
    pub kind: String,
    /// Compute capability such as `(9, 0)`.
    pub capability: Option<(u32, u32)>,
    /// Streaming multiprocessors (or compute units).
    pub multiprocessors: Option<u32>,
    /// The datasheet's rates, where the device is known.
    pub roof: Option<Roof>,
    /// What this very GPU was measured to reach, where it was.
    pub measured_roof: Option<MeasuredRoof>,
    /// Whether it is a simulation of the device that it is named after (`tests/gpu/simulated`).
    pub is_simulated: bool,
}

impl Device {
    /// The rates that a kernel can reach: as measured, else the datasheet's.
    pub fn attainable_roof(&self) -> Option<Roof> {
        self.measured_roof.map(|measured| measured.roof).or(self.roof)
    }

    /// Where [`Self::attainable_roof`] comes from: `measured on 2026-11-24` or `datasheet`; `None` where
    /// the device is not known.
    pub fn rates_from(&self) -> Option<String> {
        let datasheet = self.roof.map(|_| "datasheet".to_owned());
        self.measured_roof.map(|measured| format!("measured on {}", measured.on)).or(datasheet)
    }

    /// The name as people read it and as runs are told apart by: `NVIDIA H100 80GB HBM3 (simulated)`.
    /// [`Self::name`] is for looking the device up.
    pub fn display_name(&self) -> Cow<'_, str> {
        if self.is_simulated {
            Cow::Owned(format!("{} (simulated)", self.name))
        } else {
            Cow::Borrowed(&self.name)
        }
    }
}

/// The roofline of a device: rates that nothing on it can exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Roof {
    /// FP32 operations per second outside tensor cores.
    pub fp32_flops: Option<f64>,
    /// TF32 operations per second on tensor cores, dense.
    pub tf32_flops: Option<f64>,
    /// FP16 and BF16 operations per second on tensor cores, dense.
    pub fp16_flops: Option<f64>,
    /// Bytes per second of device memory.
    pub bandwidth: Option<f64>,
}

/// What a GPU was measured to reach, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRoof {
    /// Measured rates; the datasheet's for types that were not measured.
    pub roof: Roof,
    /// When it was measured.
    pub on: Day,
}

/// The shapes that a batch size was guessed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSource {
    /// Those of a loader's batch, where the loader declares no size.
    Loader,
    /// Those that the outermost module was given.
    Input,
}

impl BatchSource {
    /// What has those shapes.
    pub fn name(self) -> &'static str {
        match self {
            BatchSource::Loader => "the loader's batch",
            BatchSource::Input => "the model's input",
        }
    }
}

/// The headline: one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IterationCost {
    /// Nanoseconds of one iteration without a profiler: the median of [`Self::timed_ns`], or where some are
    /// slow, what [`SlowIterations::time_ns`] has. The costs of lines add up to it.
    pub time_ns: f64,
    /// Every unprofiled iteration, in nanoseconds, in order.
    pub timed_ns: Vec<f64>,
    /// How some of them are slow among the others; nothing where they are not.
    pub slow: Option<SlowIterations>,
    /// The same time by phase; the sum equals `time_ns`.
    pub phases: PhaseTimes,
    /// What each phase took in each of the profiled iterations: as [`Sample`] is of a line.
    pub phase_samples: Vec<PhaseTimes>,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// What the batch size was guessed from; nothing where it is certain.
    pub batch_guessed_from: Option<BatchSource>,
    /// Where the iteration's loop stands, where it is known.
    pub loop_line: Option<(FileId, u32)>,
    /// How iterations were found: `optimizer`, `backward`, `module`, `provider`.
    pub found_by: String,
    /// The batch is counted in tokens: each iteration gives every sequence one more.
    pub counts_tokens: bool,
}

impl IterationCost {
    /// Nanoseconds of an iteration on average, slow ones included.
    pub fn mean_ns(&self) -> f64 {
        self.slow.map_or(self.time_ns, |slow| slow.mean_ns)
    }

    /// Nanoseconds of an iteration that is not one of the slow ones.
    pub fn typical_ns(&self) -> f64 {
        self.slow.map_or(self.time_ns, |slow| slow.typical_ns)
    }

    /// Nanoseconds of each timed iteration that is not one of the slow ones.
    pub fn typical_times(&self) -> Vec<f64> {
        let most = self.slow.map_or(f64::INFINITY, |slow| slow.typical_ns.midpoint(slow.slow_ns));
        self.timed_ns.iter().copied().filter(|time_ns| *time_ns < most).collect()
    }

    /// Times whose median is [`Self::time_ns`]: of each iteration, or on average of each whole period.
    pub fn comparable_times(&self) -> Vec<f64> {
        let Some(period) = self.slow.filter(|slow| slow.are_in_lines).and_then(|it| it.period)
        else {
            return self.typical_times();
        };
        let periods = self.timed_ns.rchunks_exact((period as usize).max(1));
        periods.map(|times| times.iter().sum::<f64>() / times.len() as f64).collect()
    }

    /// What [`Self::samples_per_second`] counts: `samples/s`, or `tokens/s` of a program that generates.
    pub fn rate_unit(&self) -> &'static str {
        if self.counts_tokens { "tokens/s" } else { "samples/s" }
    }

    /// Samples per second of the wall time, slow iterations included; where the batch size is known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let (batch, mean_ns) = (self.batch_size? as f64, self.mean_ns());
        (mean_ns > 0.0).then(|| batch / (mean_ns / 1e9))
    }
}

/// Memory at the iteration's peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCost {
    /// Bytes alive at the peak.
    pub peak_bytes: u64,
    /// Bytes that the device (or the machine) has.
    pub capacity_bytes: Option<u64>,
    /// What is alive at the peak; the sum equals `peak_bytes`.
    pub at_peak: MemoryByKind,
    /// `(nanoseconds since the iteration began, bytes)`: the curve, thinned to a few hundred points.
    pub curve: Vec<(u64, u64)>,
    /// When the peak was, in nanoseconds since the iteration began.
    pub peak_at_ns: u64,
    /// The part of the iteration in which it was, where that is known.
    pub peak_phase: Option<Phase>,
    /// How long the iteration took whose memory this is, in nanoseconds. It was profiled, so it is
    /// longer than [`IterationCost::time_ns`]; the curve and the peak are on its time.
    pub recorded_ns: u64,
    /// What is alive at the peak, by when it was made; the sum equals `peak_bytes`.
    pub made: MemoryByAge,
}

/// Shares, 0 to 1, that reached a line of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Of operator (CPU) or kernel (GPU) time.
    pub time: f64,
    /// Of activation bytes at the peak.
    pub memory: f64,
}

/// A file that costs point into.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileFacts {
    /// Relative to the project's root with `/` between; libraries that count as user code stand
    /// under `site-packages/`.
    pub path: String,
    /// One checksum a line of the text that ran (see `source::fingerprint`), so that costs can
    /// follow their lines into today's text. Empty where it is unknown.
    pub fingerprint: Vec<u32>,
}

/// What a line or a module took in one of the profiled iterations, in nanoseconds: the iteration that is
/// typical of it has what it is shown with. How far the iterations lie apart is what a change is told from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// As `total_time`.
    pub total_ns: f64,
    /// As `self_time`.
    pub own_ns: f64,
}

/// So many of the profiled iterations are kept, from the first: a test needs no more.
pub const MOST_SAMPLES: usize = 10;

/// What one line costs in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineCost {
    /// The line, counted from 1, in the text that ran.
    pub line: u32,
    /// The function or class around it, as Python names it: `Net.forward`.
    pub scope: String,
    /// Conserved: the sum over all lines and untracked parts is the iteration.
    pub self_time: PhaseTimes,
    /// Everything whose call stack, or whose forward operator's call stack, has this line: counted
    /// once, however often the line stands on them.
    pub total_time: PhaseTimes,
    /// The same by profiled iteration; empty where that is not known.
    pub samples: Vec<Sample>,
    /// How often the line ran in one iteration.
    pub calls: f64,
    /// On a GPU: nanoseconds of kernels, of launching them, and of the GPU waiting for this line.
    pub device_time: Option<DeviceTime>,
    /// Alive at the peak and made here (innermost user line).
    pub self_memory: MemoryByKind,
    /// The same bytes by when they were made.
    pub self_memory_made: MemoryByAge,
    /// Alive at the peak and made here or in calls from here.
    pub total_memory: MemoryByKind,
    /// The costliest operators that ran from here (at most [`OPERATORS_PER_LINE`]).
    pub operators: Vec<OperatorCost>,
    /// Floating-point operations of all operators that ran from here, as far as they are known.
    pub flops: f64,
    /// The module instances that ran from here (at most [`MODULES_PER_LINE`]).
    pub modules: Vec<ModuleId>,
    /// What the line's own work gets out of the device; nothing where that is not known.
    pub utilization: Option<Utilization>,
    /// Measured, or a compiled region's total split by an eager pass's shares.
    pub provenance: Provenance,
}

/// How many operators a line keeps for its hover.
pub const OPERATORS_PER_LINE: usize = 8;
/// How many module instances a line keeps for its hover.
pub const MODULES_PER_LINE: usize = 16;

/// A line's time on a GPU, in nanoseconds of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceTime {
    /// Kernels and copies that the line launched, inclusive.
    pub kernel_ns: f64,
    /// Host time within launch calls, inclusive.
    pub launch_ns: f64,
    /// The GPU was idle while the host stood on this line or in calls from it.
    pub idle_ns: f64,
}

/// Calls of one operator with the same shapes from one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorCost {
    /// `aten::convolution`, or the autograd node's name.
    pub name: String,
    /// The part of the iteration.
    pub phase: Option<Phase>,
    /// Calls in one iteration.
    pub calls: f64,
    /// Nanoseconds in one iteration.
    pub time_ns: f64,
    /// Input shapes and types, as shown: `[32, 64, 56, 56] float`.
    pub inputs: String,
    /// Floating-point operations in one iteration, where the operator is known.
    pub flops: Option<f64>,
    /// Bytes that have to move in one iteration, at the least.
    pub bytes: Option<f64>,
    /// The kernels it launched, costliest first.
    pub kernels: Vec<KernelCost>,
}

/// Launches of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCost {
    /// Demangled as the profiler gives it.
    pub name: String,
    /// Launches in one iteration.
    pub calls: f64,
    /// Nanoseconds in one iteration.
    pub time_ns: f64,
    /// Occupancy, 0 to 1, computed from registers, shared memory and grid.
    pub occupancy: Option<f64>,
}

/// What one module instance costs, its children included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleCost {
    /// `layer1.0.conv1`; the outermost module has the empty path.
    pub path: String,
    /// `Conv2d`.
    pub type_name: String,
    /// The module that holds it.
    pub parent: Option<ModuleId>,
    /// The user's call stack at its construction, innermost first. The first is the line that is
    /// shown as its definition.
    pub definition: Vec<(FileId, u32)>,
    /// Forward, backward, and its parameters' share of the optimizer.
    pub total_time: PhaseTimes,
    /// The part of the time that is no child's. Conserved: the sum over all modules, and what ran
    /// outside of them, is the iteration.
    pub self_time: PhaseTimes,
    /// Both by profiled iteration; empty where that is not known.
    pub samples: Vec<Sample>,
    /// Alive at the peak and owned by or made in it.
    pub memory: MemoryByKind,
    /// The part of the memory that is no child's; conserved as the time is.
    pub self_memory: MemoryByKind,
    /// Calls in one iteration.
    pub calls: f64,
    /// Parameters, by number of elements, its children included.
    pub parameters: u64,
    /// What it gets out of the device, its children included; nothing where that is not known.
    pub utilization: Option<Utilization>,
    /// Measured, or a compiled region's total split by an eager pass's shares.
    pub provenance: Provenance,
}

impl ModuleCost {
    /// Nanoseconds that its utilization is about: the optimizer's step is shared out to the modules whose
    /// weights it changes, but runs in none of them.
    pub fn passes_ns(&self) -> f64 {
        self.total_time.total() - self.total_time.optimizer
    }
}

/// What the GPU did over the profiled iterations, in exact nanoseconds of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuActivity {
    /// First start to last end.
    pub span_ns: u64,
    /// Union of all activities.
    pub busy_ns: u64,
    /// `span - busy`.
    pub idle_ns: u64,
    /// Sum of kernels.
    pub kernel_ns: u64,
    /// Sum of kernels that were launched before the window and leaked into it.
    pub leaked_ns: u64,
}

/// A part of the iteration that belongs to no line, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Untracked {
    /// What it is, in a person's words: `Python outside the project`.
    pub name: String,
    /// The part of the iteration.
    pub phase: Phase,
    /// Nanoseconds of one iteration.
    pub time_ns: f64,
}

/// What one recording costs. See the module's page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What ran it.
    pub device: Device,
    /// The headline.
    pub iteration: IterationCost,
    /// Memory at the peak.
    pub memory: MemoryCost,
    /// How much reached a line.
    pub coverage: Coverage,
    /// The files that lines point into.
    pub files: Vec<FileFacts>,
    /// Lines by file (same index as `files`), each sorted by line.
    pub lines: Vec<Vec<LineCost>>,
    /// Module instances, parents before children.
    pub modules: Vec<ModuleCost>,
    /// Kernels over the whole iteration, costliest first.
    pub kernels: Vec<KernelCost>,
    /// GPU activity, where there was any.
    pub gpu: Option<GpuActivity>,
    /// What belongs to no line.
    pub untracked: Vec<Untracked>,
    /// What a person should know about how far to trust this.
    pub notes: Vec<String>,
    /// Of torch, as recorded.
    pub torch_version: String,
    /// What was estimated rather than measured; nothing where a run measured it all.
    pub estimate: Option<Estimate>,
    /// What it spends on talking with other ranks; nothing where it exchanges nothing.
    pub exchange: Option<Arc<Exchange>>,
    /// Nanoseconds of getting into the compiled graphs of a function, by the number that Dynamo gave it:
    /// `Region::frame` of a manifest.
    pub graph_entries: BTreeMap<u32, f64>,
    /// What the ranks of the run cost that this is the first of; nothing where it is alone.
    pub ranks: Option<Arc<Ranks>>,
    /// What changed since earlier runs, where there are some.
    pub since: Option<Arc<Since>>,
    /// What the iteration and its phases get out of the device; nothing where it cannot be replayed.
    pub metrics: Option<Arc<Metrics>>,
    /// What the iteration would save without each of its causes; nothing likewise.
    pub bottleneck: Option<Arc<Bottleneck>>,
    /// What the run wrote that was kept from the disk; nothing where it was allowed to write, and of a
    /// recording that was read again.
    pub side_effects: Option<Arc<SideEffects>>,
}

/// What a profile rests on that no run measured: that of a text that has not run, or of a device
/// that is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The device that it is for, where that is another one than the program ran on.
    pub target: Option<String>,
    /// What the headline's change is counted from: the last measurement, or the estimate of the
    /// saved text for the same device.
    pub before: Option<Before>,
}

/// The headline of before an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Before {
    /// Nanoseconds of one iteration.
    pub time_ns: f64,
    /// Samples in a batch.
    pub batch_size: Option<u64>,
    /// Bytes alive at the peak.
    pub peak_bytes: u64,
}

impl Before {
    /// The headline of a profile.
    pub fn of(profile: &Profile) -> Before {
        Before {
            time_ns: profile.iteration.time_ns,
            batch_size: profile.iteration.batch_size,
            peak_bytes: profile.memory.peak_bytes,
        }
    }

    /// Samples per second, where the batch size is known.
    pub fn samples_per_second(&self) -> Option<f64> {
        let batch = self.batch_size? as f64;
        (self.time_ns > 0.0).then(|| batch / (self.time_ns / 1e9))
    }
}
