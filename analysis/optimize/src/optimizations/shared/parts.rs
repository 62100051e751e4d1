//! The time of an operator split into parts, before and after an optimization.

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::op_cost::{self, Family, Options};
use ridgeline_operators::operator::{Arg, Operator, Tensor};

use super::layout;

/// A part of an operator's time that an optimization changes in one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The name of its factor in [`Factors`](super::factors::Factors). Parts of one kind are fitted
    /// together.
    pub kind: &'static str,
    /// Modeled time before, in nanoseconds.
    pub before_ns: f64,
    /// Modeled time after, without the fitted factor, in nanoseconds.
    pub after_ns: f64,
}

impl Part {
    /// Creates a part whose time changes only by the fitted factor.
    pub fn same(kind: &'static str, ns: f64) -> Part {
        Part { kind, before_ns: ns, after_ns: ns }
    }

    /// Multiplies the part by a count.
    #[must_use]
    pub fn times(self, count: f64) -> Part {
        let Part { kind, before_ns, after_ns } = self;
        Part { kind, before_ns: before_ns * count, after_ns: after_ns * count }
    }
}

/// A device with its precision settings.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The device that runs the operators.
    pub device: &'a DeviceSpec,
    /// Precision settings.
    pub options: Options,
}

impl Machine<'_> {
    /// Returns the modeled time of an operator in nanoseconds.
    pub fn ns(&self, operator: &Operator) -> f64 {
        op_cost::cost(operator, self.device, &self.options).time_ns.value
    }
}

/// A convolution's time: its matrix multiplication in channels_last, the transposes needed in
/// channels first, and the pass that adds its bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvolutionTime {
    /// Total time in nanoseconds.
    pub whole_ns: f64,
    /// Part of [`ConvolutionTime::whole_ns`] spent on transposes.
    pub turning_ns: f64,
    /// Part of [`ConvolutionTime::whole_ns`] spent on the bias.
    pub bias_ns: f64,
    /// Time of only the matrix multiplication in channels_last, in nanoseconds.
    pub channels_last_ns: f64,
    /// Whether it already runs in channels_last: some models convert their tensors themselves.
    pub is_channels_last: bool,
}

impl ConvolutionTime {
    /// Models the time of a recorded convolution.
    pub fn of(operator: &Operator, machine: &Machine<'_>) -> ConvolutionTime {
        let whole_ns = machine.ns(operator);
        let mut bare = operator.clone();
        let forward = operator.base_name() != Some("convolution_backward");
        if forward && let Some(bias) = bare.inputs.get_mut(2) {
            *bias = Arg::None;
        }
        let bare_ns = machine.ns(&bare);
        let channels_last_ns = machine.ns(&layout::channels_last(&bare));
        let mut tensors = operator.input_tensors().chain(&operator.outputs);
        let is_channels_last = tensors.any(Tensor::is_channels_last);
        ConvolutionTime {
            is_channels_last,
            whole_ns,
            turning_ns: (bare_ns - channels_last_ns).max(0.0),
            bias_ns: (whole_ns - bare_ns).max(0.0),
            channels_last_ns,
        }
    }

    /// Returns the part of [`ConvolutionTime::whole_ns`] spent on the matrix multiplication.
    pub fn matmul_ns(&self) -> f64 {
        self.whole_ns - self.turning_ns - self.bias_ns
    }
}

/// A group of convolutions for which libraries use the same kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionKind {
    /// 1x1 window.
    Pointwise,
    /// Larger window.
    Window,
    /// Few input channels, like an image's.
    Stem,
    /// Several groups with at most 8 channels each.
    Groups8,
    /// Several groups with up to 32 channels each.
    Groups32,
    /// Several groups with more channels.
    WideGroups,
    /// One window per channel, up to 3 x 3.
    Depthwise3,
    /// One window per channel, up to 5 x 5.
    Depthwise5,
    /// One window per channel, up to 7 x 7.
    Depthwise7,
    /// One window per channel, larger than 7 x 7.
    DepthwiseLarge,
}

impl ConvolutionKind {
    /// Whether each channel has its own window.
    pub fn is_depthwise(self) -> bool {
        matches!(
            self,
            ConvolutionKind::Depthwise3
                | ConvolutionKind::Depthwise5
                | ConvolutionKind::Depthwise7
                | ConvolutionKind::DepthwiseLarge
        )
    }

    /// Returns the kind of a convolution, or `None` for other operators.
    pub fn of(operator: &Operator) -> Option<ConvolutionKind> {
        if op_cost::work(operator)?.family != Family::Convolution {
            return None;
        }
        let backward = operator.base_name() == Some("convolution_backward");
        let (weight, groups) = if backward { (2, 9) } else { (1, 8) };
        let weight = operator.shape(weight)?;
        let groups = operator.input(groups).number().unwrap_or(1.0);
        let per_group = weight.get(1).copied().unwrap_or(1);
        let side = weight.iter().skip(2).copied().max().unwrap_or(1);
        Some(match (groups > 1.0, per_group, side) {
            (true, 1, 0..=3) => ConvolutionKind::Depthwise3,
            (true, 1, 4..=5) => ConvolutionKind::Depthwise5,
            (true, 1, 6..=7) => ConvolutionKind::Depthwise7,
            (true, 1, _) => ConvolutionKind::DepthwiseLarge,
            (true, 2..=8, _) => ConvolutionKind::Groups8,
            (true, 9..=32, _) => ConvolutionKind::Groups32,
            (true, ..) => ConvolutionKind::WideGroups,
            (false, 0..=4, _) => ConvolutionKind::Stem,
            (false, _, 0..=1) => ConvolutionKind::Pointwise,
            (false, ..) => ConvolutionKind::Window,
        })
    }
}
