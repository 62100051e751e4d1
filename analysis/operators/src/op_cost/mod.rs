//! What an operator costs on a device: operations, bytes, and the time of its kernels.
//!
//! Every family of operators says which kernels it runs and what they do; a kernel is either a
//! stream, which moves bytes ([`stream`]), or a product, which multiplies tiles ([`product`]).
//! Their times follow from the device's specification, or its measured ceilings where there are
//! any, and from a few efficiencies that were fitted on measurements ([`coefficients`]).
//! `docs/op-cost.md` says how, and how well it does.

mod attention;
mod coefficients;
mod convolution;
mod copy;
mod elementwise;
mod embedding;
mod gemm;
mod indexing;
mod loss;
mod norm;
mod optimizer;
mod pooling;
mod product;
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

use product::Product;
use stream::Stream;

use super::operator::{Operator, Tensor};
use crate::range::Range;
use ridgeline_devices::device_spec::DeviceSpec;

/// Operators that cost alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matrix products.
    Gemm,
    /// Convolutions, transposed and grouped ones among them.
    Convolution,
    /// Attention in one kernel.
    Attention,
    /// Batch, layer, group and RMS norms.
    Norm,
    /// Softmax and its logarithm.
    Softmax,
    /// What works on each element by itself.
    Elementwise,
    /// Sums, means, extremes.
    Reduction,
    /// Looking up rows by index.
    Embedding,
    /// Pooling and resampling.
    Pooling,
    /// Recurrent layers.
    Rnn,
    /// Updates of many tensors by one operator.
    Optimizer,
    /// Gathering, scattering, sorting.
    Indexing,
    /// Copies, casts and fills.
    Copy,
    /// Losses.
    Loss,
    /// What moves nothing.
    View,
    /// Not known: costed by its bytes.
    Unknown,
}

/// What an operator has to do, on any device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The operators that it costs like.
    pub family: Family,
    /// Floating-point operations, counted as `torch.utils.flop_counter` does: a multiplication and
    /// an addition are two.
    pub flops: f64,
    /// Bytes that have to move at the least: every input once and every output once. `None` where
    /// a type is not known.
    pub bytes: Option<f64>,
}

/// What an operator costs on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpCost {
    /// The operators that it costs like.
    pub family: Family,
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that have to move at the least.
    pub bytes: f64,
    /// Time of its kernels, one after another, without the host's.
    pub time_ns: Range,
    /// Kernels that it launches.
    pub launches: f64,
    /// Whether it is known; otherwise its time is that of its bytes.
    pub known: bool,
}

/// How the program runs its operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether FP32 matrix products may run in TF32 (`torch.backends.cuda.matmul.allow_tf32`).
    pub tf32_products: bool,
    /// Whether FP32 convolutions may run in TF32 (`torch.backends.cudnn.allow_tf32`).
    pub tf32_convolutions: bool,
}

impl Default for Options {
    /// PyTorch's defaults since 1.12.
    fn default() -> Options {
        Options { tf32_products: false, tf32_convolutions: true }
    }
}

/// What an operator has to do. `None` where it is not known, or its shapes make no sense.
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

/// What an operator costs on a device, by the shipped coefficients.
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

/// The factor by which the time of such operators may be off where they are part of a whole step, nine
/// times in ten.
pub fn factor_in_step(family: Family) -> f64 {
    Coefficients::shipped().range.factor_in_step(family)
}

/// The kernels that an operator launches on a device, before anything is said of their time.
pub struct Plan {
    work: Work,
    kernels: Kernels,
}

impl Plan {
    /// The kernels of an operator.
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

    /// Nanoseconds of its kernels, one after another, by given coefficients.
    pub fn time_ns(
        &self,
        device: &DeviceSpec,
        options: &Options,
        coefficients: &Coefficients,
    ) -> f64 {
        let context = Context { device, options, coefficients };
        1e9 * self.kernels.seconds(&context)
    }

    /// Kernels that it launches.
    pub fn launches(&self) -> f64 {
        self.kernels.list.len() as f64
    }

    /// What the operator has to do.
    pub fn work(&self) -> Work {
        self.work
    }
}

/// What the time of a kernel follows from, beside itself.
struct Context<'a> {
    device: &'a DeviceSpec,
    options: &'a Options,
    coefficients: &'a Coefficients,
}

enum Kernel {
    Stream(Stream),
    Product(Product),
}

/// The kernels of one operator.
#[derive(Default)]
struct Kernels {
    list: Vec<Kernel>,
}

impl Kernels {
    fn stream(&mut self, kind: stream::Kind, bytes: f64) {
        let window = stream::Window::Written;
        self.list.push(Kernel::Stream(Stream { kind, bytes, flops: 0.0, window }));
    }

    fn product(&mut self, product: Product) {
        self.list.push(Kernel::Product(product));
    }

    /// One after another.
    fn seconds(&self, context: &Context) -> f64 {
        let seconds = self.list.iter().map(|kernel| match kernel {
            Kernel::Stream(stream) => stream.seconds(context),
            Kernel::Product(product) => product.seconds(context),
        });
        seconds.sum()
    }
}

/// The family and the operations, each family knowing its own names.
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

/// Bytes of every tensor that an operator takes and gives, each once. `None` where a type is not
/// known.
fn moved_bytes(operator: &Operator) -> Option<f64> {
    let mut tensors = operator.input_tensors().chain(&operator.outputs);
    tensors.try_fold(0.0, |sum, tensor| Some(sum + tensor.bytes()?))
}

/// Elements of the largest tensor that an operator takes or gives.
fn largest_elements(operator: &Operator) -> f64 {
    operator.input_tensors().chain(&operator.outputs).map(Tensor::elements).fold(0.0, f64::max)
}
