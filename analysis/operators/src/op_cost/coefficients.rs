//! The numbers that were fitted on measurements, `coefficients.json`, with where they come from.
//!
//! Each is one thing that a person could look up or measure: a share of a peak, a time, an energy.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::product::Pass;
use super::{Family, product, stream};

/// What the fit found. Efficiencies are shares of the device's peaks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// Nanoseconds of a kernel that does nothing, on a GPU.
    pub floor_ns: f64,
    /// Nanoseconds of an operator that does nothing, on a processor.
    pub cpu_floor_ns: f64,
    /// Shares of the datasheet's bandwidth that the best kernel reaches.
    pub attainable: Attainable,
    /// Of the last cache.
    pub cache: Cache,
    /// Of kernels that move bytes.
    pub stream: Streams,
    /// Of kernels that multiply.
    pub product: Products,
    /// By which factor one operator's time may be off.
    pub range: Ranges,
}

/// Shares of the datasheet's bandwidth by generation of chips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attainable {
    pub pascal: f64,
    pub volta: f64,
    pub turing: f64,
    /// 8.0.
    pub ampere: f64,
    /// 8.6 and 8.7.
    pub ampere_consumer: f64,
    pub ada: f64,
    /// Hopper and what came after it.
    pub later: f64,
    /// Of other makers, and processors.
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

/// What the last cache before device memory does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The share of it that a kernel finds filled with what it needs.
    pub share: f64,
    /// How many times faster than memory it is.
    pub speed: f64,
}

/// Shares of the bandwidth by what a kernel does with the bytes.
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
    /// The share of the FP32 rate that a depthwise convolution's multiplications reach.
    pub arithmetic: f64,
    /// How many times slower they are for the gradient of the input, and of the weight.
    pub arithmetic_input: f64,
    pub arithmetic_weight: f64,
    /// How many times slower they are with windows that no kernel is written for.
    pub arithmetic_generic: f64,
    /// The same with channels last.
    pub arithmetic_generic_channels_last: f64,
}

/// Kernels that multiply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    /// Shares of the rate of tensor cores.
    pub tensor: Efficiencies,
    /// Shares of the rate outside of them.
    pub scalar: Efficiencies,
    /// How much a tile's loads slow it down: multiplied by the sum of its sides' inverses, where a
    /// multiprocessor does 512 operations in a clock.
    pub tile_load: f64,
    /// The same outside of tensor cores, where a multiplication takes longer.
    pub tile_load_scalar: f64,
    /// A tile's beginning and end, in elements of the inner dimension.
    pub prologue: f64,
    /// How much of an unfilled wave is lost: 1 all of it, 0 nothing.
    pub quantization: f64,
    /// Operations on tensor cores, in a clock of a multiprocessor, that it loads for where rows are
    /// not aligned to sixteen bytes.
    pub unaligned: f64,
    /// The share of the bandwidth that a product reaches.
    pub bandwidth: f64,
    /// How well arithmetic hides memory: 1 not at all.
    pub overlap: f64,
    /// The share of the FP32 rate that is left where other instructions take the place of
    /// multiplications.
    pub issue: f64,
    /// Joules of an operation on tensor cores in FP16, in a 12 nm process.
    pub tensor_joules: f64,
    /// The same outside of tensor cores at the boost clock, of the power that memory leaves.
    pub scalar_joules: f64,
    /// Energy of an operation on tensor cores of capability 8.0, beside one in a 12 nm process.
    pub joules_of_8_0: f64,
    /// The same outside of tensor cores.
    pub scalar_joules_of_8_0: f64,
}

/// Shares of a peak rate by whose product it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiencies {
    pub matrix: f64,
    pub batched: f64,
    pub pointwise: f64,
    pub window: f64,
    pub stem: f64,
    pub grouped: f64,
    /// What a gradient of the input reaches of what the forward pass does.
    pub of_input: f64,
    /// The same for a gradient of the weight.
    pub of_weight: f64,
    pub attention: f64,
    pub attention_backward: f64,
    pub recurrent: f64,
}

/// Factors by which one operator's time may be off, nine times in ten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranges {
    pub product: f64,
    pub convolution: f64,
    pub stream: f64,
    /// Nothing was measured of these.
    pub unmeasured: f64,
    pub unknown: f64,
    /// A whole step, where the errors of many operators level out: from the same held-out errors.
    pub step: f64,
}

impl Coefficients {
    /// Those that come with Ridgeline.
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

impl Products {
    pub(super) fn efficiency(&self, kind: product::Kind, tensor_cores: bool) -> f64 {
        use product::Kind;
        let of = if tensor_cores { &self.tensor } else { &self.scalar };
        let by_pass = |pass: Pass| match pass {
            Pass::Forward => 1.0,
            Pass::Input => of.of_input,
            Pass::Weight => of.of_weight,
        };
        match kind {
            Kind::Matrix => of.matrix,
            Kind::Batched => of.batched,
            Kind::Pointwise(pass) => of.pointwise * by_pass(pass),
            Kind::Window(pass) => of.window * by_pass(pass),
            Kind::Stem(pass) => of.stem * by_pass(pass),
            Kind::Grouped(pass) => of.grouped * by_pass(pass),
            Kind::Attention => of.attention,
            Kind::AttentionBackward => of.attention_backward,
            Kind::Recurrent { .. } => of.recurrent,
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

    /// The factor of an operator's time within a whole step: errors of operators that were measured
    /// level out to [`Ranges::step`], those of the others are not known to.
    pub(super) fn factor_in_step(&self, family: Family) -> f64 {
        let alone = self.factor(family);
        match family {
            Family::Attention | Family::Embedding | Family::Indexing => alone,
            Family::Rnn | Family::Optimizer | Family::Unknown => alone,
            _ => alone.min(self.step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_operators_are_better_known_in_a_step_than_alone() {
        let ranges = &Coefficients::shipped().range;
        assert!(ranges.factor_in_step(Family::Gemm) < ranges.factor(Family::Gemm));
        assert_eq!(ranges.factor_in_step(Family::Unknown), ranges.factor(Family::Unknown));
        assert_eq!(ranges.factor_in_step(Family::View), 1.0);
    }

    #[test]
    fn the_file_that_is_built_in_is_read() {
        assert!(Coefficients::shipped().floor_ns > 0.0);
    }
}
