//! A [`Profile`]: the cost of one iteration of a training loop, by line, module and kernel.
//!
//! It is the contract between attribution (which creates it), presentation (which displays it) and
//! the server (which stores the newest one). Times are nanoseconds per iteration: the median, or
//! the mean of whole periods if some iterations are slow. Sizes are bytes at the moment of peak
//! memory. `present/json.rs` converts a profile to the JSON that `--json` writes.
//!
//! It is plain data. The crates that compute parts of it depend on it, not the other way round;
//! `analysis/tests/layers.rs` checks that.

pub mod bottleneck;
mod callers;
pub mod day;
mod device;
mod estimate;
pub mod exchange;
mod expression;
mod iteration;
mod memory;
mod phase;
pub mod ranks;
pub mod side_effects;
pub mod since;
pub mod slow_iterations;
pub mod utilization;

use std::collections::BTreeMap;
use std::sync::Arc;

use bottleneck::Bottleneck;
pub use callers::{CALLERS_PER_LINE, CallerCost, InstanceCost};
pub use device::{Device, MeasuredRoof, Roof};
pub use estimate::{Baseline, Estimate};
use exchange::Exchange;
pub use expression::{EXPRESSIONS_PER_LINE, ExpressionCost, ExpressionRange};
pub use iteration::{BUSY_NOTE, BUSY_SHARE, BatchSource, IterationCost};
pub use memory::{MemoryByAge, MemoryByKind, MemoryCost, TensorMemory};
pub use phase::{Phase, PhaseTimes};
use ranks::Ranks;
use side_effects::SideEffects;
use since::Since;
use utilization::{Metrics, Utilization};

/// The origin of a number. It is displayed: `~` for estimates, faded for stale values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provenance {
    /// Measured by a run of exactly this text.
    #[default]
    Measured,
    /// Computed rather than measured, or a measured total split by an estimated share.
    Estimated,
    /// Measured, but the statement has changed since.
    Stale,
}

/// Index into [`Profile::files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Index into [`Profile::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// Shares, 0 to 1, that were attributed to the user's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Share of operator time (CPU) or kernel time (GPU).
    pub time: f64,
    /// Share of the activation bytes at the peak.
    pub memory: f64,
}

/// A source file with costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileFacts {
    /// Path relative to the project's root, separated by `/`. Libraries that count as user code are
    /// under `site-packages/`.
    pub path: String,
    /// One checksum per line of the text that ran (see `python::fingerprint`), to map costs to the
    /// current text. Empty if unknown.
    pub fingerprint: Vec<u32>,
}

/// The time of a line or a module in one profiled iteration, in nanoseconds, scaled so that the
/// typical iteration has the displayed cost. `compare` uses the spread of samples to separate
/// changes from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Total time, like `total_time`.
    pub total_ns: f64,
    /// Self time, like `self_time`.
    pub own_ns: f64,
}

/// The maximum number of profiled iterations stored as samples, from the first. A statistical test
/// needs no more.
pub const MAX_SAMPLES: usize = 10;

/// The cost of one line in one iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineCost {
    /// Line number, counted from 1, in the text that ran.
    pub line: u32,
    /// Qualified name of the enclosing function or class: `Net.forward`.
    pub scope: String,
    /// Self time. The sum over all lines and untracked parts equals the iteration.
    pub self_time: PhaseTimes,
    /// Time of everything whose call stack, or whose forward operator's call stack, contains this
    /// line. Counted once even if the line is on the stack several times.
    pub total_time: PhaseTimes,
    /// Both times by profiled iteration; empty if unknown.
    pub samples: Vec<Sample>,
    /// Executions per iteration.
    pub calls: f64,
    /// On a GPU: time of kernels, of launches, and of the GPU waiting for this line.
    pub device_time: Option<DeviceTime>,
    /// Memory at the peak that was allocated here (this is the innermost user line).
    pub self_memory: MemoryByKind,
    /// `self_memory` by time of allocation.
    pub self_memory_made: MemoryByAge,
    /// Memory at the peak that was allocated here or in calls from here.
    pub total_memory: MemoryByKind,
    /// The expressions that this line evaluates, in source order, at most
    /// [`EXPRESSIONS_PER_LINE`]. Empty if the line has only one, and if their times are unknown.
    pub expressions: Vec<ExpressionCost>,
    /// The lines that call the function around this line, most expensive first, at most
    /// [`CALLERS_PER_LINE`]. Empty if there is only one.
    pub callers: Vec<CallerCost>,
    /// The instances of the class around this line that run it, most expensive first, at most
    /// [`CALLERS_PER_LINE`]. Empty if there is only one.
    pub instances: Vec<InstanceCost>,
    /// The most expensive operators called from here, at most [`OPERATORS_PER_LINE`].
    pub operators: Vec<OperatorCost>,
    /// Floating-point operations of all operators called from here whose count is known.
    pub flops: f64,
    /// The module instances called from here, at most [`MODULES_PER_LINE`].
    pub modules: Vec<ModuleId>,
    /// Device utilization of the line's self time; `None` if unknown.
    pub utilization: Option<Utilization>,
    /// Measured, or the total of a compiled region split by the shares of an eager pass.
    pub provenance: Provenance,
}

/// The maximum number of operators stored per line, for its hover.
pub const OPERATORS_PER_LINE: usize = 8;
/// The maximum number of module instances stored per line, for its hover.
pub const MODULES_PER_LINE: usize = 16;

/// GPU-related time of a line, in nanoseconds per iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceTime {
    /// Kernels and copies that the line launched, calls included.
    pub kernel_ns: f64,
    /// Host time in launch calls, calls included.
    pub launch_ns: f64,
    /// GPU idle time while the host was on this line or in calls from it.
    pub idle_ns: f64,
}

/// Calls of one operator with the same shapes from one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperatorCost {
    /// The operator's name such as `aten::convolution`, or the autograd node's name.
    pub name: String,
    pub phase: Option<Phase>,
    /// Calls per iteration.
    pub calls: f64,
    /// Nanoseconds per iteration.
    pub time_ns: f64,
    /// The part of `time_ns` that is self time of this line. An operator is also listed at the lines
    /// that call its line. 0 in estimates.
    pub self_time_ns: f64,
    /// Input shapes and types as displayed: `[32, 64, 56, 56] float`.
    pub inputs: String,
    /// Floating-point operations per iteration, if the operator is known.
    pub flops: Option<f64>,
    /// The minimum number of bytes that have to be moved per iteration.
    pub bytes: Option<f64>,
    /// The kernels it launched, most expensive first.
    pub kernels: Vec<KernelCost>,
}

/// Launches of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelCost {
    /// The demangled name from the profiler.
    pub name: String,
    /// Launches per iteration.
    pub calls: f64,
    /// Nanoseconds per iteration.
    pub time_ns: f64,
    /// Occupancy, 0 to 1, computed from registers, shared memory and grid.
    pub occupancy: Option<f64>,
}

/// The cost of one module instance, its children included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleCost {
    /// Module path such as `layer1.0.conv1`; empty for the outermost module.
    pub path: String,
    /// Class name such as `Conv2d`.
    pub type_name: String,
    /// The parent module.
    pub parent: Option<ModuleId>,
    /// The user's call stack at construction, innermost line first. The innermost line is shown as
    /// the module's definition.
    pub definition: Vec<(FileId, u32)>,
    /// Time of forward, backward, and its parameters' share of the optimizer step.
    pub total_time: PhaseTimes,
    /// Self time: `total_time` without the children. The sum over all modules, plus the time
    /// outside of modules, equals the iteration.
    pub self_time: PhaseTimes,
    /// Both times by profiled iteration; empty if unknown.
    pub samples: Vec<Sample>,
    /// Memory at the peak that the module owns or allocated.
    pub memory: MemoryByKind,
    /// `memory` without the children; conserved like `self_time`.
    pub self_memory: MemoryByKind,
    /// Calls per iteration.
    pub calls: f64,
    /// Number of parameter elements, children included.
    pub parameters: u64,
    /// Device utilization, children included; `None` if unknown.
    pub utilization: Option<Utilization>,
    /// Measured, or the total of a compiled region split by the shares of an eager pass.
    pub provenance: Provenance,
}

impl ModuleCost {
    /// Returns the nanoseconds that `utilization` covers. The optimizer step is excluded: it is
    /// distributed to the modules whose weights it updates, but runs in none of them.
    pub fn passes_ns(&self) -> f64 {
        self.total_time.total() - self.total_time.optimizer
    }
}

/// GPU activity over the profiled iterations, in exact nanoseconds of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuActivity {
    /// From the first start to the last end.
    pub span_ns: u64,
    /// Union of all activities.
    pub busy_ns: u64,
    /// `span - busy`.
    pub idle_ns: u64,
    /// Sum of kernel times.
    pub kernel_ns: u64,
    /// Sum of kernel times that were launched before the profiled window and ran into it.
    pub leaked_ns: u64,
}

/// A part of the iteration that belongs to no line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Untracked {
    /// Display name: `Python outside the project`.
    pub name: String,
    pub phase: Phase,
    /// Nanoseconds per iteration.
    pub time_ns: f64,
}

/// The cost of one iteration of a recording. See the [crate documentation](crate).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub device: Device,
    pub iteration: IterationCost,
    pub memory: MemoryCost,
    /// The shares of time and memory that were attributed to lines.
    pub coverage: Coverage,
    /// The source files with costs.
    pub files: Vec<FileFacts>,
    /// Lines by file (same index as `files`), each sorted by line number.
    pub lines: Vec<Vec<LineCost>>,
    /// Module instances, parents before children.
    pub modules: Vec<ModuleCost>,
    /// Kernels of the whole iteration, most expensive first.
    pub kernels: Vec<KernelCost>,
    /// GPU activity, if a GPU was used.
    pub gpu: Option<GpuActivity>,
    /// Time that belongs to no line.
    pub untracked: Vec<Untracked>,
    /// Notes for the user about the accuracy of the profile.
    pub notes: Vec<String>,
    /// Recorded PyTorch version.
    pub torch_version: String,
    /// Set if part of the profile was estimated; `None` if a run measured everything.
    pub estimate: Option<Estimate>,
    /// Communication with other ranks; `None` if there is none.
    pub exchange: Option<Arc<Exchange>>,
    /// Overhead of entering the compiled graphs of a function in nanoseconds, by Dynamo's frame
    /// number (`Region::frame` of a manifest).
    pub graph_entries: BTreeMap<u32, f64>,
    /// Costs of all ranks of the run, on its first rank; `None` if there is only one rank.
    pub ranks: Option<Arc<Ranks>>,
    /// Changes since earlier runs, if there are any.
    pub since: Option<Arc<Since>>,
    /// Device utilization of the iteration and its phases; `None` if it cannot be replayed.
    pub metrics: Option<Arc<Metrics>>,
    /// Savings by cause; `None` if the iteration cannot be replayed.
    pub bottleneck: Option<Arc<Bottleneck>>,
    /// Writes of the run that were kept off the disk; `None` if the run was allowed to write, and
    /// for a recording loaded from disk.
    pub side_effects: Option<Arc<SideEffects>>,
}
