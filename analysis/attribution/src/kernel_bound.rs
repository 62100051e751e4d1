//! Whether arithmetic or memory limits a kernel, or on a CPU an operator: by the roofline of its
//! operator (Williams, Waterman and Patterson, CACM 2009), else by its name.

use crate::metrics::tensor_cores::product_unit;
use ridgeline_graph::graph::{Graph, Task, TaskKind};
use ridgeline_operators::op_cost::{self, Work};
use ridgeline_operators::product_kernel::{ProductType, product_of};
use ridgeline_profile::Roof;
use ridgeline_profile::bottleneck::Cause;

/// An operator of a CPU that neither ceiling explains by at least this share is bound by neither: what
/// takes its time is the call. ...
const LEAST_EXPLAINED: f64 = 0.3;
/// ... In a long call something else than the call must take the time; arithmetic and memory are all
/// there is, unless PyTorch runs it by some slow path.
const LEAST_EXPLAINED_OF_LONG: f64 = 0.1;
/// Calls of at least so many nanoseconds are long. Only they tell what a processor reaches.
const LEAST_NS: f64 = 200_000.0;
/// A product shows a ceiling from so many operations on, ...
const LEAST_FLOPS: f64 = 50e6;
/// ... and a stream from so many bytes, which are more than a core's caches hold.
const LEAST_BYTES: f64 = 8e6;
/// Operations per byte from which on an operator is a product rather than a stream.
const PRODUCT: f64 = 8.0;

/// What limits the kernels of a graph.
pub(super) struct KernelBounds {
    on_gpu: bool,
    roof: Option<Roof>,
    /// By operator of the graph.
    works: Vec<Option<Work>>,
    /// On a CPU by operator: the answer.
    of_operators: Vec<Cause>,
    /// By name of the graph.
    names: Vec<Name>,
}

/// What the name of a kernel tells.
#[derive(Clone, Copy, Default)]
struct Name {
    is_product: bool,
    /// Whether it touches each element once.
    moves: bool,
}

impl Name {
    fn of(name: &str) -> Name {
        Name { is_product: product_unit(name).is_some(), moves: moves(name) }
    }
}

impl KernelBounds {
    pub(crate) fn new(graph: &Graph, on_gpu: bool, roof: Option<&Roof>) -> KernelBounds {
        let works: Vec<Option<Work>> = graph.operators.iter().map(op_cost::work).collect();
        let of_operators = if on_gpu { Vec::new() } else { on_processor(&works, &times(graph)) };
        let names = graph.names.iter().map(|name| Name::of(name)).collect();
        KernelBounds { on_gpu, roof: roof.copied(), names, works, of_operators }
    }

    /// Of a kernel, or on a CPU of the host within an operator.
    pub(crate) fn of(&self, graph: &Graph, task: &Task) -> Cause {
        if !self.on_gpu {
            let found = task.operator.and_then(|of| self.of_operators.get(of as usize));
            return found.copied().unwrap_or(Cause::Operators);
        }
        let name = task.name.and_then(|name| self.names.get(name as usize).copied());
        let Name { is_product, moves } = name.unwrap_or_default();
        let work = task.operator.and_then(|of| self.works.get(of as usize).copied().flatten());
        let product = product_of(graph.operator_of(task), graph.name_of(task));
        let by_roofline = work.and_then(|work| self.by_roofline(work, product));
        match by_roofline {
            // A product's other kernels move its tensors into another order.
            Some(Cause::Compute) if !is_product && multiplies(work) => Cause::MemoryBandwidth,
            Some(bound) => bound,
            None if is_product => Cause::Compute,
            None if moves => Cause::MemoryBandwidth,
            None => Cause::Kernels,
        }
    }

    fn by_roofline(&self, work: Work, product: Option<ProductType>) -> Option<Cause> {
        let roof = self.roof?;
        let peak = match product {
            Some(ProductType::Half) => roof.fp16_flops.or(roof.fp32_flops),
            Some(ProductType::Tf32) => roof.tf32_flops.or(roof.fp32_flops),
            Some(ProductType::Fp32) | None => roof.fp32_flops,
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

/// Kernels whose names say that they touch each element once: PyTorch's own, and cuDNN's norms and
/// changes of layout.
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
    // Names of templates run to thousands of characters, and say it early.
    let name: String = name.chars().take(200).collect::<String>().to_ascii_lowercase();
    MARKS.iter().any(|mark| name.contains(mark))
}

/// By operator: nanoseconds of all its calls, and how many those are.
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

/// The iteration's own fastest product and fastest stream are the processor's ceilings, as far as
/// there are any that are large enough to show one.
fn on_processor(works: &[Option<Work>], times: &[(f64, f64)]) -> Vec<Cause> {
    let calls = || {
        works.iter().zip(times).filter_map(|(work, (time_ns, calls))| {
            let work = (*work)?;
            (*calls > 0.0 && *time_ns > 0.0).then(|| (work, time_ns / calls))
        })
    };
    let is_product = |work: &Work| work.bytes.is_some_and(|bytes| work.flops > PRODUCT * bytes);
    let fastest = |rates: &mut dyn Iterator<Item = f64>| rates.reduce(f64::max);
    let long = || calls().filter(|(_, time_ns)| *time_ns >= LEAST_NS);
    let peak = fastest(
        &mut long()
            .filter(|(work, _)| is_product(work) && work.flops >= LEAST_FLOPS)
            .map(|(work, time_ns)| work.flops / time_ns),
    );
    let bandwidth =
        fastest(&mut long().filter(|(work, _)| !is_product(work)).filter_map(|(work, time_ns)| {
            Some(work.bytes.filter(|bytes| *bytes >= LEAST_BYTES)? / time_ns)
        }));
    works
        .iter()
        .zip(times)
        .map(|(work, (time_ns, calls))| {
            let Some(work) = work.filter(|_| *calls > 0.0) else { return Cause::Operators };
            let explains = |amount: Option<f64>, rate: Option<f64>| {
                amount.zip(rate).map_or(0.0, |(amount, rate)| amount / rate / (time_ns / calls))
            };
            let compute = explains(Some(work.flops), peak);
            let memory = explains(work.bytes, bandwidth);
            let is_long = time_ns / calls >= LEAST_NS;
            let least = if is_long { LEAST_EXPLAINED_OF_LONG } else { LEAST_EXPLAINED };
            match compute.max(memory) {
                explained if explained < least => Cause::Operators,
                _ if compute > memory => Cause::Compute,
                _ => Cause::MemoryBandwidth,
            }
        })
        .collect()
}
