//! The work of an operator on a device: matrix multiplication and memory traffic.

use super::efficiencies::{Efficiencies, MatmulKind, Stream};
use super::limits::Limits;
use ridgeline_operators::op_cost::{self, Family, Work};
use ridgeline_operators::operator::{ElementType, Operator};

/// The compute and the bandwidth bound of one operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kernel {
    flops: f64,
    bytes: f64,
    product: Option<MatmulKind>,
    stream: Stream,
}

/// The minimum time of a kernel, in seconds.
const MIN_SECONDS: f64 = 3e-6;

/// The exponent of the p-norm of both bounds, because neither overlaps the other fully.
const SHARPNESS: i32 = 3;

impl Kernel {
    /// Returns `None` if the operator runs no kernel.
    pub(super) fn of(operator: &Operator) -> Option<Kernel> {
        let unknown = Work { family: Family::Unknown, flops: 0.0, bytes: None };
        let work = op_cost::work(operator).unwrap_or(unknown);
        let bytes = work.bytes.unwrap_or_else(|| {
            let tensors = operator.input_tensors().chain(&operator.outputs);
            tensors.filter_map(|tensor| tensor.bytes()).sum()
        });
        if work.family == Family::View || bytes <= 0.0 {
            return None;
        }
        let name = operator.base_name().unwrap_or_default();
        let product = match work.family {
            Family::Gemm => Some(gemm_kind(operator)),
            Family::Convolution => Some(convolution_kind(operator)),
            Family::Attention => Some(MatmulKind::Attention),
            _ => None,
        };
        let stream = match (product, work.family) {
            (Some(MatmulKind::Depthwise), _) => Stream::Depthwise,
            (_, Family::Convolution) => Stream::Convolution,
            (Some(_), _) => Stream::Product,
            (_, Family::Norm) => Stream::Norm,
            (_, Family::Softmax) => Stream::Softmax,
            (_, Family::Reduction) => Stream::Reduction,
            (_, Family::Pooling) => Stream::Pooling,
            (_, Family::Copy | Family::Indexing | Family::Embedding) => Stream::Copy,
            _ if is_activation(name) => Stream::Activation,
            _ => Stream::Elementwise,
        };
        let flops = if product.is_some() { work.flops } else { 0.0 };
        Some(Kernel { flops, bytes, product, stream })
    }

    /// Returns the time in seconds.
    pub(super) fn seconds(&self, limits: &Limits, efficiencies: &Efficiencies) -> f64 {
        let cache = efficiencies.cache_share * limits.cache_bytes;
        // A small working set is entirely in the cache. Of a larger one, less and less is: data is
        // evicted before it is read again.
        let hits = if self.bytes <= cache { 1.0 } else { (cache / self.bytes).powi(2) };
        let from_cache = hits / (limits.clocks * efficiencies.cache_bytes_per_clock);
        let from_memory = (1.0 - hits) / limits.bandwidth;
        let memory_time =
            self.bytes * (from_cache + from_memory) / efficiencies.stream(self.stream);
        let compute_time = self.product.map_or(0.0, |product| {
            let peak =
                if product.uses_tensor_cores() { limits.products } else { limits.arithmetic };
            self.flops / (peak * efficiencies.product(product))
        });
        let both = memory_time.powi(SHARPNESS) + compute_time.powi(SHARPNESS);
        both.powf(1.0 / f64::from(SHARPNESS)) + MIN_SECONDS
    }

    /// Returns whether a compiler fuses it into another kernel.
    pub(super) fn is_fused_away(&self) -> bool {
        matches!(self.stream, Stream::Elementwise | Stream::Activation | Stream::Copy)
    }
}

fn is_activation(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "erf",
        "exp",
        "mish",
        "hardswish",
        "hardsigmoid",
        "elu",
        "softplus",
        "pow",
        "log",
        "rsqrt",
    ];
    NAMES.contains(&name.trim_end_matches('_'))
}

fn is_half(element: Option<ElementType>) -> bool {
    matches!(element, Some(ElementType::Float16 | ElementType::BFloat16))
}

/// Returns the kind of a GEMM. Tensor cores need rows of multiples of 8 elements (16 bytes); cuBLAS
/// has slower kernels for others.
fn gemm_kind(operator: &Operator) -> MatmulKind {
    let right = operator.input_tensors().last();
    if !is_half(right.and_then(|tensor| tensor.element)) {
        return MatmulKind::SinglePrecision;
    }
    let depth = right.and_then(|tensor| tensor.shape.iter().rev().nth(1)).copied().unwrap_or(8);
    let width = operator.outputs.first().and_then(|tensor| tensor.shape.last()).copied();
    let aligned = |to: u64| depth % to == 0 && width.unwrap_or(8) % to == 0;
    match (aligned(8), aligned(2)) {
        (true, _) => MatmulKind::Gemm,
        (false, true) => MatmulKind::GemmHalfAligned,
        (false, false) => MatmulKind::GemmUnaligned,
    }
}

fn convolution_kind(operator: &Operator) -> MatmulKind {
    let weight = operator.tensor(1);
    let shape = weight.map(|tensor| tensor.shape.as_slice()).unwrap_or_default();
    let grouped = operator.input(8).number().is_some_and(|groups| groups > 1.0);
    if grouped && shape.get(1) == Some(&1) {
        return MatmulKind::Depthwise;
    }
    if !is_half(weight.and_then(|tensor| tensor.element)) {
        return MatmulKind::SinglePrecision;
    }
    match (grouped, shape.iter().skip(2).all(|side| *side == 1)) {
        (true, _) => MatmulKind::GroupedConvolution,
        (false, true) => MatmulKind::Convolution1x1,
        (false, false) => MatmulKind::Convolution,
    }
}
