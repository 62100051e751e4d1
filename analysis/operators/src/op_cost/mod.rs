//! The cost of an operator on a device: FLOPs, bytes, and the time of its kernels.
//!
//! Each operator family lists the kernels that it launches. A kernel either moves bytes
//! ([`stream`]) or multiplies tiles of matrices ([`matmul`]). Their times follow from the device's
//! specification, or from measured ceilings where available, and from a few efficiencies fitted to
//! measurements ([`coefficients`]). `docs/op-cost.md` describes the method and its accuracy.

mod attention;
mod coefficients;
mod convolution;
mod copy;
mod elementwise;
mod embedding;
mod gemm;
mod indexing;
mod loss;
mod matmul;
mod norm;
mod optimizer;
mod pooling;
mod reduction;
mod rnn;
mod softmax;
mod stream;
mod sustained;
#[cfg(test)]
mod tests;
mod unknown;
mod view;

pub use coefficients::Coefficients;

use matmul::Matmul;
use stream::Stream;

use super::operator::{Operator, Tensor};
use crate::range::Range;
use ridgeline_devices::device_spec::DeviceSpec;

/// A group of operators with the same cost model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matrix multiplications.
    Gemm,
    /// Convolutions, including transposed and grouped ones.
    Convolution,
    /// Fused attention.
    Attention,
    /// Batch, layer, group and RMS norms.
    Norm,
    /// Softmax and log-softmax.
    Softmax,
    /// Elementwise operators.
    Elementwise,
    /// Sums, means, minima and maxima.
    Reduction,
    /// Embedding lookups.
    Embedding,
    /// Pooling and resampling.
    Pooling,
    /// Recurrent layers.
    Rnn,
    /// Multi-tensor updates: foreach and fused optimizers.
    Optimizer,
    /// Gather, scatter and sort.
    Indexing,
    /// Copies, casts and fills.
    Copy,
    /// Losses.
    Loss,
    /// Views: no bytes are moved.
    View,
    /// Unknown: the cost is estimated from the bytes.
    Unknown,
}

/// The work of an operator, independent of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The operator family.
    pub family: Family,
    /// Floating-point operations, counted like `torch.utils.flop_counter`: a multiply-add is two.
    pub flops: f64,
    /// Minimum bytes moved: every input and every output once. `None` if a type is unknown.
    pub bytes: Option<f64>,
}

/// The cost of an operator on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpCost {
    /// The operator family.
    pub family: Family,
    /// Floating-point operations.
    pub flops: f64,
    /// Minimum bytes moved.
    pub bytes: f64,
    /// Time of its kernels run one after another, without host time, in nanoseconds.
    pub time_ns: Range,
    /// Number of kernel launches.
    pub launches: f64,
    /// Whether the operator is known. If not, its time is estimated from its bytes.
    pub known: bool,
}

/// The program's precision settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether FP32 matrix multiplications may run in TF32
    /// (`torch.backends.cuda.matmul.allow_tf32`).
    pub tf32_matmuls: bool,
    /// Whether FP32 convolutions may run in TF32 (`torch.backends.cudnn.allow_tf32`).
    pub tf32_convolutions: bool,
}

impl Default for Options {
    /// Returns PyTorch's defaults since 1.12.
    fn default() -> Options {
        Options { tf32_matmuls: false, tf32_convolutions: true }
    }
}

/// Computes the work of an operator. Returns `None` if the operator is unknown or its shapes make
/// no sense.
pub fn work(operator: &Operator) -> Option<Work> {
    let name = operator.base_name()?;
    let (family, flops) = recognize(name, operator)?;
    let bytes = match family {
        Family::View => Some(0.0),
        Family::Embedding => embedding::bytes(name, operator),
        Family::Indexing => indexing::bytes(name, operator),
        _ => moved_bytes(operator),
    };
    (flops.is_finite() && flops >= 0.0).then_some(Work { family, flops, bytes })
}

/// Estimates the cost of an operator on a device with the shipped coefficients.
pub fn cost(operator: &Operator, device: &DeviceSpec, options: &Options) -> OpCost {
    let plan = Plan::new(operator, device, options);
    let known = plan.work.family != Family::Unknown;
    let coefficients = Coefficients::shipped();
    let value = plan.time_ns(device, options, coefficients);
    OpCost {
        family: plan.work.family,
        flops: plan.work.flops,
        bytes: plan.work.bytes.unwrap_or(0.0),
        time_ns: Range::within_factor(value, coefficients.range.factor(plan.work.family)),
        launches: plan.kernels.list.len() as f64,
        known,
    }
}

/// Returns the factor that bounds the error of a family's time within a whole step in nine of ten
/// cases.
pub fn factor_in_step(family: Family) -> f64 {
    Coefficients::shipped().range.factor_in_step(family)
}

/// The kernels that an operator launches on a device, without their times.
pub struct Plan {
    work: Work,
    kernels: Kernels,
}

impl Plan {
    /// Lists the kernels of an operator.
    pub fn new(operator: &Operator, device: &DeviceSpec, options: &Options) -> Plan {
        let coefficients = Coefficients::shipped();
        let context = Context { device, options, coefficients };
        let mut kernels = Kernels::default();
        match (work(operator), operator.base_name()) {
            (Some(mut work), Some(name)) => {
                work.bytes = work.bytes.or_else(|| Some(unknown::bytes(operator)));
                launch(name, operator, &work, &context, &mut kernels);
                Plan { work, kernels }
            }
            _ => {
                let work = unknown::work(operator);
                unknown::launch(&work, &mut kernels);
                Plan { work, kernels }
            }
        }
    }

    /// Returns the time of its kernels run one after another with the given coefficients, in
    /// nanoseconds.
    pub fn time_ns(
        &self,
        device: &DeviceSpec,
        options: &Options,
        coefficients: &Coefficients,
    ) -> f64 {
        let context = Context { device, options, coefficients };
        1e9 * self.kernels.seconds(&context)
    }

    /// Returns the number of kernel launches.
    pub fn launches(&self) -> f64 {
        self.kernels.list.len() as f64
    }

    /// Returns the work of the operator.
    pub fn work(&self) -> Work {
        self.work
    }
}

/// Everything that a kernel's time depends on besides the kernel.
struct Context<'a> {
    device: &'a DeviceSpec,
    options: &'a Options,
    coefficients: &'a Coefficients,
}

enum Kernel {
    Stream(Stream),
    Matmul(Matmul),
}

/// The kernels of one operator.
#[derive(Default)]
struct Kernels {
    list: Vec<Kernel>,
}

impl Kernels {
    fn stream(&mut self, kind: stream::Kind, bytes: f64) {
        let window = stream::Window::Specialized;
        self.list.push(Kernel::Stream(Stream { kind, bytes, flops: 0.0, window }));
    }

    fn matmul(&mut self, matmul: Matmul) {
        self.list.push(Kernel::Matmul(matmul));
    }

    /// Returns the time of all kernels run one after another, in seconds.
    fn seconds(&self, context: &Context) -> f64 {
        let seconds = self.list.iter().map(|kernel| match kernel {
            Kernel::Stream(stream) => stream.seconds(context),
            Kernel::Matmul(matmul) => matmul.seconds(context),
        });
        seconds.sum()
    }
}

/// Returns the family and the FLOPs. Each family knows the names of its operators.
fn recognize(name: &str, operator: &Operator) -> Option<(Family, f64)> {
    if view::is_view(name) {
        return Some((Family::View, 0.0));
    }
    type Flops = fn(&str, &Operator) -> Option<f64>;
    let families: [(Family, Flops); 14] = [
        (Family::Elementwise, elementwise::flops),
        (Family::Gemm, gemm::flops),
        (Family::Convolution, convolution::flops),
        (Family::Attention, attention::flops),
        (Family::Norm, norm::flops),
        (Family::Softmax, softmax::flops),
        (Family::Reduction, reduction::flops),
        (Family::Copy, copy::flops),
        (Family::Embedding, embedding::flops),
        (Family::Pooling, pooling::flops),
        (Family::Rnn, rnn::flops),
        (Family::Optimizer, optimizer::flops),
        (Family::Indexing, indexing::flops),
        (Family::Loss, loss::flops),
    ];
    families.iter().find_map(|(family, flops)| Some((*family, flops(name, operator)?)))
}

fn launch(name: &str, operator: &Operator, work: &Work, context: &Context, kernels: &mut Kernels) {
    let bytes = work.bytes.unwrap_or_else(|| unknown::bytes(operator));
    match work.family {
        Family::View => {}
        Family::Gemm => gemm::launch(name, operator, context, kernels),
        Family::Convolution => convolution::launch(name, operator, context, kernels),
        Family::Attention => attention::launch(name, operator, work, kernels),
        Family::Norm => norm::launch(name, operator, kernels),
        Family::Softmax => softmax::launch(name, bytes, kernels),
        Family::Elementwise => elementwise::launch(name, operator, bytes, kernels),
        Family::Reduction => kernels.stream(stream::Kind::Reduction, bytes),
        Family::Embedding => embedding::launch(name, operator, bytes, kernels),
        Family::Pooling => pooling::launch(name, bytes, kernels),
        Family::Rnn => rnn::launch(name, operator, kernels),
        Family::Optimizer => optimizer::launch(name, operator, bytes, kernels),
        Family::Indexing => indexing::launch(name, bytes, kernels),
        Family::Copy => copy::launch(operator, bytes, kernels),
        Family::Loss => loss::launch(bytes, kernels),
        Family::Unknown => unknown::launch(work, kernels),
    }
}

/// Adds up the bytes of every input and output, each once. Returns `None` if a type is unknown.
fn moved_bytes(operator: &Operator) -> Option<f64> {
    // A fill does not read its input: it writes to it, or takes its shape.
    let only_writes = is_fill(operator) && !operator.outputs.is_empty();
    let inputs = (!only_writes).then(|| operator.input_tensors());
    let mut tensors = inputs.into_iter().flatten().chain(&operator.outputs);
    tensors.try_fold(0.0, |sum, tensor| Some(sum + tensor.bytes()?))
}

fn is_fill(operator: &Operator) -> bool {
    let name = operator.base_name().unwrap_or_default();
    matches!(
        name,
        "zero_"
            | "fill_"
            | "zeros_like"
            | "ones_like"
            | "full_like"
            | "new_zeros"
            | "new_ones"
            | "new_full"
    )
}

/// Returns the number of elements of the largest input or output.
fn largest_elements(operator: &Operator) -> f64 {
    operator.input_tensors().chain(&operator.outputs).map(Tensor::elements).fold(0.0, f64::max)
}
