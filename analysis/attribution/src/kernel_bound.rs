//! Determines whether a kernel, or on a CPU an operator, is limited by arithmetic or memory
//! bandwidth: by the roofline of its operator (Williams, Waterman and Patterson, CACM 2009), else
//! by its name.

use crate::metrics::tensor_cores::matmul_unit;
use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_operators::matmul_kernel::{MatmulType, matmul_type_of};
use ridgeline_operators::op_cost::{self, Work};
use ridgeline_profile::Roof;
use ridgeline_profile::bottleneck::Cause;

/// The maximum nanoseconds of an operator that computes nothing and is still PyTorch's overhead
/// (`view`, `empty`).
pub(super) const LONG_OPERATOR_NS: f64 = 50_000.0;
/// The minimum share of either peak that a CPU operator must reach to be limited by it. Below it,
/// the operator is limited by call overhead. ...
const MIN_EXPLAINED: f64 = 0.3;
/// ... For long calls the minimum is lower: overhead cannot explain them, so arithmetic or memory
/// must, unless PyTorch uses a slow code path.
const MIN_EXPLAINED_OF_LONG_CALLS: f64 = 0.1;
/// The minimum nanoseconds of a long call. Only long calls show what a CPU can reach.
const MIN_LONG_CALL_NS: f64 = 200_000.0;
/// The minimum number of operations for a GEMM to determine peak compute, ...
const MIN_FLOPS: f64 = 50e6;
/// ... and the minimum bytes for a memory-bound operator to determine bandwidth: more than the
/// caches of a core.
const MIN_BYTES: f64 = 8e6;
/// The minimum number of operations per byte of a GEMM; below it, an operator is memory-bound.
const MIN_GEMM_INTENSITY: f64 = 8.0;

/// The limits of a graph's kernels.
pub(super) struct KernelBounds {
    on_gpu: bool,
    roof: Option<Roof>,
    /// Work by operator of the graph.
    works: Vec<Option<Work>>,
    /// On a CPU: the cause by operator.
    of_operators: Vec<Cause>,
    /// Properties by kernel name of the graph.
    names: Vec<Name>,
}

/// The properties of a kernel that its name reveals.
#[derive(Clone, Copy, Default)]
struct Name {
    is_matmul: bool,
    /// Whether it accesses each element once.
    moves: bool,
}

impl Name {
    fn of(name: &str) -> Name {
        Name { is_matmul: matmul_unit(name).is_some(), moves: moves(name) }
    }
}

impl KernelBounds {
    pub(crate) fn new(graph: &Graph, on_gpu: bool, roof: Option<&Roof>) -> KernelBounds {
        let works: Vec<Option<Work>> = graph.operators.iter().map(op_cost::work).collect();
        let of_operators = if on_gpu { Vec::new() } else { causes_on_cpu(&works, &times(graph)) };
        let names = graph.names.iter().map(|name| Name::of(name)).collect();
        KernelBounds { on_gpu, roof: roof.copied(), names, works, of_operators }
    }

    /// Returns the cause of a kernel, or on a CPU of an operator task.
    pub(crate) fn of(&self, graph: &Graph, task: &Task) -> Cause {
        if !self.on_gpu {
            let found = task.operator.and_then(|of| self.of_operators.get(of as usize));
            return found.copied().unwrap_or(Cause::Operators);
        }
        let name = task.name.and_then(|name| self.names.get(name as usize).copied());
        let Name { is_matmul, moves } = name.unwrap_or_default();
        let work = task.operator.and_then(|of| self.works.get(of as usize).copied().flatten());
        let matmul = matmul_type_of(graph.operator_of(task), graph.name_of(task));
        let by_roofline = work.and_then(|work| self.by_roofline(work, matmul));
        match by_roofline {
            // The other kernels of a GEMM operator change the layout of its tensors.
            Some(Cause::Compute) if !is_matmul && multiplies(work) => Cause::MemoryBandwidth,
            Some(bound) => bound,
            None if is_matmul => Cause::Compute,
            None if moves => Cause::MemoryBandwidth,
            None => Cause::Kernels,
        }
    }

    fn by_roofline(&self, work: Work, matmul: Option<MatmulType>) -> Option<Cause> {
        let roof = self.roof?;
        let peak = match matmul {
            Some(MatmulType::Half) => roof.fp16_flops.or(roof.fp32_flops),
            Some(MatmulType::Tf32) => roof.tf32_flops.or(roof.fp32_flops),
            Some(MatmulType::Fp32) | None => roof.fp32_flops,
        };
        let peak = peak.filter(|peak| *peak > 0.0)?;
        let bandwidth = roof.bandwidth.filter(|bandwidth| *bandwidth > 0.0)?;
        let is_compute = work.flops / peak > work.bytes? / bandwidth;
        Some(if is_compute { Cause::Compute } else { Cause::MemoryBandwidth })
    }
}

fn multiplies(work: Option<Work>) -> bool {
    use op_cost::Family;
    let family = work.map(|work| work.family);
    matches!(family, Some(Family::Gemm | Family::Convolution | Family::Attention | Family::Rnn))
}

/// Whether a kernel's name shows that it accesses each element once: PyTorch's own kernels, and
/// cuDNN's norms and layout changes.
fn moves(name: &str) -> bool {
    const MARKS: [&str; 26] = [
        "elementwise",
        "reduce_kernel",
        "softmax",
        "layer_norm",
        "layernorm",
        "rms_norm",
        "batch_norm",
        "batchnorm",
        "group_norm",
        "bn_fw",
        "bn_bw",
        "nchwtonhwc",
        "nhwctonchw",
        "transpose",
        "cat",
        "copy",
        "fill",
        "pool",
        "index",
        "gather",
        "scatter",
        "embedding",
        "dropout",
        "multi_tensor_apply",
        "upsample",
        "subtensorop",
    ];
    // Template names have thousands of characters, and the relevant part is at the start.
    let name: String = name.chars().take(200).collect::<String>().to_ascii_lowercase();
    MARKS.iter().any(|mark| name.contains(mark))
}

/// Returns the cause of a CPU operator of unknown cost: a short call is dispatch, a longer one
/// computes.
pub(super) fn unexplained(call_ns: f64) -> Cause {
    if call_ns < LONG_OPERATOR_NS { Cause::Operators } else { Cause::Kernels }
}

/// Returns the total nanoseconds and the number of calls by operator.
fn times(graph: &Graph) -> Vec<(f64, f64)> {
    let mut times = vec![(0.0, 0.0); graph.operators.len()];
    let mut last_call = None;
    for task in graph.tasks.iter().filter(|task| task.kind == TaskKind::HostOperator) {
        let slot = task.operator.and_then(|of| times.get_mut(of as usize));
        let Some((time_ns, calls)) = slot else { continue };
        *time_ns += task.duration_ns;
        if task.call != last_call {
            *calls += 1.0;
            last_call = task.call;
        }
    }
    times
}

/// Returns the cause of each CPU operator. The fastest GEMM and the fastest memory-bound operator
/// of the iteration give the CPU's peaks, if there are large enough ones.
fn causes_on_cpu(works: &[Option<Work>], times: &[(f64, f64)]) -> Vec<Cause> {
    let calls = || {
        works.iter().zip(times).filter_map(|(work, (time_ns, calls))| {
            let work = (*work)?;
            (*calls > 0.0 && *time_ns > 0.0).then(|| (work, time_ns / calls))
        })
    };
    let is_matmul =
        |work: &Work| work.bytes.is_some_and(|bytes| work.flops > MIN_GEMM_INTENSITY * bytes);
    let fastest = |rates: &mut dyn Iterator<Item = f64>| rates.reduce(f64::max);
    let long = || calls().filter(|(_, time_ns)| *time_ns >= MIN_LONG_CALL_NS);
    let peak = fastest(
        &mut long()
            .filter(|(work, _)| is_matmul(work) && work.flops >= MIN_FLOPS)
            .map(|(work, time_ns)| work.flops / time_ns),
    );
    let bandwidth =
        fastest(&mut long().filter(|(work, _)| !is_matmul(work)).filter_map(|(work, time_ns)| {
            Some(work.bytes.filter(|bytes| *bytes >= MIN_BYTES)? / time_ns)
        }));
    works
        .iter()
        .zip(times)
        .map(|(work, (time_ns, calls))| {
            let call_ns = if *calls > 0.0 { time_ns / calls } else { 0.0 };
            let Some(work) = work.filter(|_| *calls > 0.0) else { return unexplained(call_ns) };
            let explains = |amount: Option<f64>, rate: Option<f64>| {
                amount.zip(rate).map_or(0.0, |(amount, rate)| amount / rate / (time_ns / calls))
            };
            let compute = explains(Some(work.flops), peak);
            let memory = explains(work.bytes, bandwidth);
            let is_long = time_ns / calls >= MIN_LONG_CALL_NS;
            let least = if is_long { MIN_EXPLAINED_OF_LONG_CALLS } else { MIN_EXPLAINED };
            match compute.max(memory) {
                explained if explained < least => Cause::Operators,
                _ if compute > memory => Cause::Compute,
                _ => Cause::MemoryBandwidth,
            }
        })
        .collect()
}
