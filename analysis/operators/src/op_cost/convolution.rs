//! Convolutions: matrix multiplications over the channels and the window (implicit GEMM, as in
//! cuDNN), or memory-bound kernels where each channel has its own window (depthwise).

use super::matmul::{Kind, Matmul, Pass};
use super::stream::{self, Stream, Window};
use super::{Context, Kernel, Kernels};
use crate::operator::{ElementType, Operator, Tensor, elements};
use ridgeline_devices::device_spec::DeviceKind;

/// A convolution, forward or backward.
struct Convolution {
    input: Tensor,
    weight: Tensor,
    output: Tensor,
    groups: f64,
    transposed: bool,
    /// Whether a backward operator computes the gradients of the input and of the weight. `None` in
    /// the forward pass.
    gradients: Option<(bool, bool)>,
}

/// Counts two operations per multiplication. The gradients of the input and of the weight each cost
/// as much as the forward pass.
pub(super) fn flops(name: &str, operator: &Operator) -> Option<f64> {
    let convolution = read(name, operator)?;
    let times = convolution
        .gradients
        .map_or(1.0, |(input, weight)| f64::from(u8::from(input)) + f64::from(u8::from(weight)));
    Some(times * convolution.flops())
}

fn read(name: &str, operator: &Operator) -> Option<Convolution> {
    let tensor = |index| operator.tensor(index).cloned();
    match name {
        "conv1d" | "conv2d" | "conv3d" => forward(operator, 6, false),
        "convolution" | "_convolution" | "convolution_overrideable" => {
            forward(operator, 8, operator.input(6).flag() == Some(true))
        }
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => forward(operator, 6, true),
        "cudnn_convolution" => forward(operator, 5, false),
        "mkldnn_convolution" => forward(operator, 6, false),
        "_conv_depthwise2d" | "conv_depthwise3d" => {
            let mut depthwise = forward(operator, usize::MAX, false)?;
            depthwise.groups = *depthwise.input.shape.get(1)? as f64;
            Some(depthwise)
        }
        "convolution_backward" | "convolution_backward_overrideable" => {
            let wanted = |index| operator.input(10).flag_of(index).unwrap_or(true);
            Some(Convolution {
                output: tensor(0)?,
                input: tensor(1)?,
                weight: tensor(2)?,
                groups: operator.input(9).number().unwrap_or(1.0).max(1.0),
                transposed: operator.input(7).flag() == Some(true),
                gradients: Some((wanted(0), wanted(1))),
            })
        }
        _ => None,
    }
}

fn forward(operator: &Operator, groups: usize, transposed: bool) -> Option<Convolution> {
    Some(Convolution {
        input: operator.tensor(0)?.clone(),
        weight: operator.tensor(1)?.clone(),
        output: operator.outputs.first()?.clone(),
        groups: operator.input(groups).number().unwrap_or(1.0).max(1.0),
        transposed,
        gradients: None,
    })
}

impl Convolution {
    /// Counts the FLOPs. The weight's second dimension is already the channels per group. Each
    /// element of the side with fewer positions goes through the whole window.
    fn flops(&self) -> f64 {
        let per_element = self.weight.shape.get(1..).map_or(0.0, elements);
        let side = if self.transposed { &self.input } else { &self.output };
        2.0 * side.elements() * per_element
    }

    fn is_depthwise(&self) -> bool {
        let channels = self.input.shape.get(1).copied().unwrap_or(0) as f64;
        self.groups > 1.0 && self.groups == channels
    }

    /// Whether the convolution runs in channels_last. The activations decide: weights with a 1x1
    /// window look the same in both layouts.
    fn is_channels_last(&self) -> bool {
        self.input.is_channels_last() || self.output.is_channels_last()
    }

    fn element(&self) -> ElementType {
        self.input.element.unwrap_or(ElementType::Float32)
    }

    fn bytes(&self) -> [f64; 3] {
        [&self.input, &self.weight, &self.output]
            .map(|tensor| tensor.elements() * self.element().bytes())
    }
}

pub(super) fn launch(name: &str, operator: &Operator, context: &Context, kernels: &mut Kernels) {
    let Some(convolution) = read(name, operator) else { return };
    let passes: &[Pass] = match convolution.gradients {
        None => &[Pass::Forward],
        Some((true, true)) => &[Pass::Input, Pass::Weight],
        Some((true, false)) => &[Pass::Input],
        Some((false, true)) => &[Pass::Weight],
        Some((false, false)) => &[],
    };
    for pass in passes {
        if convolution.is_depthwise() {
            launch_depthwise(&convolution, *pass, kernels);
        } else {
            launch_matmul(&convolution, *pass, context, kernels);
        }
    }
    let [_, _, output] = convolution.bytes();
    // PyTorch adds the bias in place after the convolution.
    if convolution.gradients.is_none() && operator.tensor(2).is_some() {
        kernels.stream(stream::Kind::Broadcast, 2.0 * output);
    }
    // The gradient of the bias is the sum of the output's gradient over all positions.
    if convolution.gradients.is_some() && operator.input(10).flag_of(2) == Some(true) {
        kernels.stream(stream::Kind::Reduction, output);
    }
}

/// Adds a depthwise kernel. Each channel has its own window, and tensor cores have nothing to
/// share.
fn launch_depthwise(convolution: &Convolution, pass: Pass, kernels: &mut Kernels) {
    let [input, weight, output] = convolution.bytes();
    let kind = match pass {
        Pass::Forward => stream::Kind::Depthwise,
        Pass::Input => stream::Kind::DepthwiseInput,
        Pass::Weight => stream::Kind::DepthwiseWeight,
    };
    // In channels first, PyTorch runs its own kernel, which is specialized for windows of 3 x 3
    // (`DepthwiseConv2d.cu`). In channels_last, cuDNN runs. It is fast up to 7 x 7 and slow at 9 x
    // 9, according to the measured steps of ConvNeXt and ConvMixer.
    let positions = convolution.weight.shape.get(2..).map_or(1.0, elements);
    let window = match convolution.is_channels_last() {
        false if positions > 9.0 => Window::Generic,
        true if positions > 49.0 => Window::GenericChannelsLast,
        _ => Window::Specialized,
    };
    let (bytes, flops) = (input + weight + output, convolution.flops());
    kernels.list.push(Kernel::Stream(Stream { kind, bytes, flops, window }));
}

fn launch_matmul(convolution: &Convolution, pass: Pass, context: &Context, kernels: &mut Kernels) {
    let [input, weight, output] = convolution.bytes();
    // A transposed convolution swaps the roles of input and output.
    let (source, target, pass) = match (convolution.transposed, pass) {
        (false, pass) => (&convolution.input, &convolution.output, pass),
        (true, Pass::Forward) => (&convolution.output, &convolution.input, Pass::Input),
        (true, Pass::Input) => (&convolution.output, &convolution.input, Pass::Forward),
        (true, Pass::Weight) => (&convolution.output, &convolution.input, Pass::Weight),
    };
    let channels = |tensor: &Tensor| tensor.shape.get(1).copied().unwrap_or(1).max(1) as f64;
    // Every group has at least one channel.
    let groups = convolution.groups.min(channels(source).max(channels(target)));
    let (in_channels, out_channels) = (channels(source), channels(target));
    let positions = target.elements() / out_channels;
    let in_positions = source.elements() / in_channels;
    let window = convolution.weight.shape.get(2..).map_or(1.0, elements);
    let few_channels = in_channels <= FEW_CHANNELS;
    let (in_channels, out_channels) = (in_channels / groups, out_channels / groups);
    let kind = match (groups > 1.0, few_channels, window > 1.0) {
        (true, ..) => Kind::Grouped(pass),
        (false, true, _) => Kind::Stem(pass),
        (false, false, true) => Kind::Window(pass),
        (false, false, false) => Kind::Pointwise(pass),
    };
    let (rows, columns, inner) = match pass {
        Pass::Forward => (positions, out_channels, in_channels * window),
        // A stride skips multiplications in proportion to the positions it skips.
        Pass::Input => {
            let share = (positions / in_positions.max(1.0)).min(1.0);
            (in_positions, in_channels, out_channels * window * share)
        }
        Pass::Weight => (out_channels, in_channels * window, positions),
    };
    let element = convolution.element();
    let reorder_bytes = match context.device.kind {
        DeviceKind::Gpu => 0.0,
        DeviceKind::Cpu => WEIGHT_REORDER_PASSES * weight,
    };
    let matmul = Matmul {
        kind,
        batch: groups,
        rows,
        columns,
        inner,
        element,
        tf32: context.options.tf32_convolutions,
        bytes: input + weight + output + reorder_bytes,
        aligned: true,
    };
    // Tensor-core kernels need channels_last. With channels first, inputs and outputs are
    // transposed before and after (cuDNN's `nchwToNhwcKernel` and `nhwcToNchwKernel`).
    if !matmul.wants_channels_last(context) || convolution.is_channels_last() {
        kernels.matmul(matmul);
        return;
    }
    let (reads, writes) = match pass {
        Pass::Forward => (input, output),
        Pass::Input => (output, input),
        Pass::Weight => (input + output, weight),
    };
    let mut transposing = Kernels::default();
    transposing.stream(stream::Kind::Layout, 2.0 * reads);
    transposing.matmul(matmul);
    transposing.stream(stream::Kind::Layout, 2.0 * writes);
    // In FP32 there is also a kernel outside tensor cores that needs no transposes. Libraries take
    // the faster one.
    let mut direct = Kernels::default();
    direct.matmul(Matmul { tf32: false, ..matmul });
    let is_single = element == ElementType::Float32;
    let faster = if is_single && direct.seconds(context) < transposing.seconds(context) {
        direct
    } else {
        transposing
    };
    kernels.list.extend(faster.list);
}

/// On a CPU, oneDNN reorders weights into blocks, and reads those, at each call. Gradients of
/// weights are reordered back. With 512 channels of 4 x 4, half a batch therefore takes 0.70 of the
/// time of a whole one (torch 2.15, one core of a Xeon). The multiplications alone would take 0.50.
const WEIGHT_REORDER_PASSES: f64 = 2.0;

/// Images have three channels, which do not fill a tile.
const FEW_CHANNELS: f64 = 4.0;
