//! The coefficients fitted to measurements (`coefficients.json`), with their provenance.
//!
//! Each is a physical quantity that a person could look up or measure: a share of a peak, a time,
//! an energy.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::matmul::Pass;
use super::{Family, matmul, stream};

/// The fitted coefficients. Efficiencies are shares of the device's peaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Time of an empty kernel on a GPU, in nanoseconds.
    pub floor_ns: f64,
    /// Time of an empty operator on a CPU, in nanoseconds.
    pub cpu_floor_ns: f64,
    /// Share of the datasheet's bandwidth that the best kernel reaches.
    pub attainable: Attainable,
    /// Last-level cache.
    pub cache: Cache,
    /// Kernels that move bytes.
    pub stream: Streams,
    /// Kernels that multiply matrices.
    pub product: Matmuls,
    /// Uncertainty of one operator's time, as a factor.
    pub range: Ranges,
}

/// Shares of the datasheet's bandwidth by GPU generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attainable {
    pub pascal: f64,
    pub volta: f64,
    pub turing: f64,
    /// Compute capability 8.0.
    pub ampere: f64,
    /// Compute capability 8.6 and 8.7.
    pub ampere_consumer: f64,
    pub ada: f64,
    /// Hopper and later.
    pub later: f64,
    /// GPUs of other vendors, and CPUs.
    pub other: f64,
}

impl Attainable {
    pub(super) fn share(&self, capability: Option<(u32, u32)>) -> f64 {
        match capability {
            Some((0..7, _)) => self.pascal,
            Some((7, 0..5)) => self.volta,
            Some((7, _)) => self.turing,
            Some((8, 0)) => self.ampere,
            Some((8, 9)) => self.ada,
            Some((8, _)) => self.ampere_consumer,
            Some(_) => self.later,
            None => self.other,
        }
    }
}

/// The effect of the last cache before device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Share of the cache that already holds what a kernel needs.
    pub share: f64,
    /// Speed of the cache relative to memory.
    pub speed: f64,
}

/// Shares of the bandwidth by access pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    pub elementwise: f64,
    pub broadcast: f64,
    pub random: f64,
    pub copy: f64,
    pub transpose: f64,
    pub layout: f64,
    pub reduction: f64,
    pub softmax: f64,
    pub softmax_backward: f64,
    pub layer_norm: f64,
    pub layer_norm_backward: f64,
    pub batch_norm: f64,
    pub batch_norm_backward: f64,
    pub batch_norm_channels_last: f64,
    pub batch_norm_channels_last_backward: f64,
    pub gather: f64,
    pub scatter: f64,
    pub sort: f64,
    pub pooling: f64,
    pub pooling_backward: f64,
    pub depthwise: f64,
    pub depthwise_input: f64,
    pub depthwise_weight: f64,
    pub optimizer: f64,
    pub unknown: f64,
    /// Share of the FP32 rate that the multiplications of a depthwise convolution reach.
    pub arithmetic: f64,
    /// Slowdown of these multiplications for the gradient of the input.
    pub arithmetic_input: f64,
    /// Slowdown for the gradient of the weight.
    pub arithmetic_weight: f64,
    /// Slowdown for window sizes that have no specialized kernel.
    pub arithmetic_generic: f64,
    /// The same slowdown in channels_last.
    pub arithmetic_generic_channels_last: f64,
}

/// Kernels that multiply matrices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matmuls {
    /// Shares of the tensor-core rate.
    pub tensor: Efficiencies,
    /// Shares of the rate outside tensor cores.
    pub scalar: Efficiencies,
    /// Slowdown by a tile's loads: a factor on the sum of the inverses of the tile's sides, for a
    /// multiprocessor that does 512 operations per clock.
    pub tile_load: f64,
    /// The same outside tensor cores, where a multiplication takes longer.
    pub tile_load_scalar: f64,
    /// Prologue and epilogue of a tile, in elements of the inner dimension.
    pub prologue: f64,
    /// Share of an unfilled wave that is lost, from 0 to 1.
    pub quantization: f64,
    /// Tensor-core operations per clock that a multiprocessor can load operands for when rows are
    /// not aligned to 16 bytes.
    pub unaligned: f64,
    /// Share of the bandwidth that a matrix multiplication reaches.
    pub bandwidth: f64,
    /// Overlap of arithmetic and memory access; 1 is no overlap.
    pub overlap: f64,
    /// Share of the FP32 rate that remains where other instructions take issue slots from
    /// multiplications.
    pub issue: f64,
    /// Energy of an FP16 tensor-core operation in a 12 nm process, in joules.
    pub tensor_joules: f64,
    /// Energy of an operation outside tensor cores at the boost clock, in joules, from the power
    /// that memory leaves.
    pub scalar_joules: f64,
    /// Energy of a tensor-core operation of capability 8.0, relative to one in a 12 nm process.
    pub joules_of_8_0: f64,
    /// The same ratio outside tensor cores.
    pub scalar_joules_of_8_0: f64,
}

/// Shares of a peak rate by operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiencies {
    pub matrix: f64,
    pub batched: f64,
    pub pointwise: f64,
    pub window: f64,
    pub stem: f64,
    pub grouped: f64,
    /// Efficiency of the input gradient relative to the forward pass.
    pub of_input: f64,
    /// Efficiency of the weight gradient relative to the forward pass.
    pub of_weight: f64,
    pub attention: f64,
    pub attention_backward: f64,
    pub recurrent: f64,
}

/// Factors that bound the error of one operator's time in nine of ten cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    pub product: f64,
    pub convolution: f64,
    pub stream: f64,
    /// Families without measurements.
    pub unmeasured: f64,
    pub unknown: f64,
    /// A whole step, where the errors of many operators average out. From the same held-out errors.
    pub step: f64,
}

impl Coefficients {
    /// Returns the coefficients shipped with Ridgeline.
    pub fn shipped() -> &'static Coefficients {
        &SHIPPED
    }
}

#[expect(clippy::expect_used, reason = "a test reads the file that is built in")]
static SHIPPED: LazyLock<Coefficients> = LazyLock::new(|| {
    serde_json::from_str::<Shipped>(include_str!("coefficients.json"))
        .expect("the file that is built in is well formed")
        .coefficients
});

#[derive(Deserialize)]
struct Shipped {
    coefficients: Coefficients,
}

impl Streams {
    pub(super) fn efficiency(&self, kind: stream::Kind) -> f64 {
        use stream::Kind;
        match kind {
            Kind::Elementwise => self.elementwise,
            Kind::Broadcast => self.broadcast,
            Kind::Random => self.random,
            Kind::Copy => self.copy,
            Kind::Transpose => self.transpose,
            Kind::Layout => self.layout,
            Kind::Reduction => self.reduction,
            Kind::Softmax => self.softmax,
            Kind::SoftmaxBackward => self.softmax_backward,
            Kind::LayerNorm => self.layer_norm,
            Kind::LayerNormBackward => self.layer_norm_backward,
            Kind::BatchNorm => self.batch_norm,
            Kind::BatchNormBackward => self.batch_norm_backward,
            Kind::BatchNormChannelsLast => self.batch_norm_channels_last,
            Kind::BatchNormChannelsLastBackward => self.batch_norm_channels_last_backward,
            Kind::Gather => self.gather,
            Kind::Scatter => self.scatter,
            Kind::Sort => self.sort,
            Kind::Pooling => self.pooling,
            Kind::PoolingBackward => self.pooling_backward,
            Kind::Depthwise => self.depthwise,
            Kind::DepthwiseInput => self.depthwise_input,
            Kind::DepthwiseWeight => self.depthwise_weight,
            Kind::Optimizer => self.optimizer,
            Kind::Unknown => self.unknown,
        }
    }
}

impl Matmuls {
    pub(super) fn efficiency(&self, kind: matmul::Kind, tensor_cores: bool) -> f64 {
        use matmul::Kind;
        let shares = if tensor_cores { &self.tensor } else { &self.scalar };
        let by_pass = |pass: Pass| match pass {
            Pass::Forward => 1.0,
            Pass::Input => shares.of_input,
            Pass::Weight => shares.of_weight,
        };
        match kind {
            Kind::Matrix => shares.matrix,
            Kind::Batched => shares.batched,
            Kind::Pointwise(pass) => shares.pointwise * by_pass(pass),
            Kind::Window(pass) => shares.window * by_pass(pass),
            Kind::Stem(pass) => shares.stem * by_pass(pass),
            Kind::Grouped(pass) => shares.grouped * by_pass(pass),
            Kind::Attention => shares.attention,
            Kind::AttentionBackward => shares.attention_backward,
            Kind::Recurrent { .. } => shares.recurrent,
        }
    }
}

impl Ranges {
    pub(super) fn factor(&self, family: Family) -> f64 {
        match family {
            Family::View => 1.0,
            Family::Gemm => self.product,
            Family::Convolution => self.convolution,
            Family::Elementwise | Family::Copy | Family::Norm | Family::Softmax => self.stream,
            Family::Reduction | Family::Loss | Family::Pooling => self.stream,
            Family::Attention | Family::Embedding | Family::Indexing => self.unmeasured,
            Family::Rnn | Family::Optimizer => self.unmeasured,
            Family::Unknown => self.unknown,
        }
    }

    /// Returns the factor for an operator's time within a whole step. Errors of measured families
    /// average out to [`Ranges::step`]. Errors of the others may not.
    pub(super) fn factor_in_step(&self, family: Family) -> f64 {
        let single = self.factor(family);
        match family {
            Family::Attention | Family::Embedding | Family::Indexing => single,
            Family::Rnn | Family::Optimizer | Family::Unknown => single,
            _ => single.min(self.step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_operators_are_more_certain_within_a_step() {
        let ranges = &Coefficients::shipped().range;
        assert!(ranges.factor_in_step(Family::Gemm) < ranges.factor(Family::Gemm));
        assert_eq!(ranges.factor_in_step(Family::Unknown), ranges.factor(Family::Unknown));
        assert_eq!(ranges.factor_in_step(Family::View), 1.0);
    }

    #[test]
    fn the_built_in_file_is_valid() {
        assert!(Coefficients::shipped().floor_ns > 0.0);
    }
}
