//! What an operator makes a device do: multiply, and move bytes.

use super::efficiencies::{Efficiencies, Product, Stream};
use super::limits::Limits;
use ridgeline_operators::op_cost::{self, Family, Work};
use ridgeline_operators::operator::{ElementType, Operator};

/// Both bounds of one operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kernel {
    flops: f64,
    bytes: f64,
    product: Option<Product>,
    stream: Stream,
}

/// No kernel is shorter.
const SHORTEST_SECONDS: f64 = 3e-6;

/// How sharply the larger of two bounds decides: their p-norm, as neither overlaps the other fully.
const SHARPNESS: i32 = 3;

impl Kernel {
    /// `None` where the operator runs none.
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
            Family::Gemm => Some(of_gemm(operator)),
            Family::Convolution => Some(of_convolution(operator)),
            Family::Attention => Some(Product::Attention),
            _ => None,
        };
        let stream = match (product, work.family) {
            (Some(Product::Depthwise), _) => Stream::Depthwise,
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

    /// Its time.
    pub(super) fn seconds(&self, limits: &Limits, efficiencies: &Efficiencies) -> f64 {
        let cache = efficiencies.cache_share * limits.cache_bytes;
        // All of a small working set is found in the cache; of a larger one ever less, since what
        // is read again was driven out by what came after it.
        let hits = if self.bytes <= cache { 1.0 } else { (cache / self.bytes).powi(2) };
        let from_cache = hits / (limits.clocks * efficiencies.cache_bytes_per_clock);
        let from_memory = (1.0 - hits) / limits.bandwidth;
        let moving = self.bytes * (from_cache + from_memory) / efficiencies.stream(self.stream);
        let multiplying = self.product.map_or(0.0, |product| {
            let peak =
                if product.uses_tensor_cores() { limits.products } else { limits.arithmetic };
            self.flops / (peak * efficiencies.product(product))
        });
        let both = moving.powi(SHARPNESS) + multiplying.powi(SHARPNESS);
        both.powf(1.0 / f64::from(SHARPNESS)) + SHORTEST_SECONDS
    }

    /// Whether a compiler makes it part of another kernel.
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

/// Tensor cores want rows in eights (16 bytes); cuBLAS has slower kernels for the others.
fn of_gemm(operator: &Operator) -> Product {
    let right = operator.input_tensors().last();
    if !is_half(right.and_then(|tensor| tensor.element)) {
        return Product::SinglePrecision;
    }
    let depth = right.and_then(|tensor| tensor.shape.iter().rev().nth(1)).copied().unwrap_or(8);
    let width = operator.outputs.first().and_then(|tensor| tensor.shape.last()).copied();
    let aligned = |to: u64| depth % to == 0 && width.unwrap_or(8) % to == 0;
    match (aligned(8), aligned(2)) {
        (true, _) => Product::Gemm,
        (false, true) => Product::GemmHalfAligned,
        (false, false) => Product::GemmUnaligned,
    }
}

fn of_convolution(operator: &Operator) -> Product {
    let weight = operator.tensor(1);
    let shape = weight.map(|tensor| tensor.shape.as_slice()).unwrap_or_default();
    let grouped = operator.input(8).number().is_some_and(|groups| groups > 1.0);
    if grouped && shape.get(1) == Some(&1) {
        return Product::Depthwise;
    }
    if !is_half(weight.and_then(|tensor| tensor.element)) {
        return Product::SinglePrecision;
    }
    match (grouped, shape.iter().skip(2).all(|side| *side == 1)) {
        (true, _) => Product::GroupedConvolution,
        (false, true) => Product::Convolution1x1,
        (false, false) => Product::Convolution,
    }
}
