//! The time of an operator by what it is spent on, before an optimization and after it.

use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_operators::op_cost::{self, Family, Options};
use ridgeline_operators::operator::{Arg, Operator, Tensor};

use super::layout;

/// A piece of an operator's time that an optimization changes in one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What is fitted together: the name of a factor in [`Factors`](super::factors::Factors).
    pub kind: &'static str,
    /// Nanoseconds now, by the cost model.
    pub before_ns: f64,
    /// Nanoseconds then, before the fitted factor.
    pub after_ns: f64,
}

impl Part {
    /// Takes as long then as now, but for the factor.
    pub fn same(kind: &'static str, ns: f64) -> Part {
        Part { kind, before_ns: ns, after_ns: ns }
    }

    /// So many of it.
    #[must_use]
    pub fn times(self, count: f64) -> Part {
        let Part { kind, before_ns, after_ns } = self;
        Part { kind, before_ns: before_ns * count, after_ns: after_ns * count }
    }
}

/// A device and how it is used.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// What runs the operators.
    pub device: &'a DeviceSpec,
    /// How.
    pub options: Options,
}

impl Machine<'_> {
    /// Nanoseconds of an operator.
    pub fn ns(&self, operator: &Operator) -> f64 {
        op_cost::cost(operator, self.device, &self.options).time_ns.value
    }
}

/// A convolution's time: its product with channels last, what turning its tensors around takes with
/// channels first, and the pass that adds its bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvolutionTime {
    /// All of it, as it is.
    pub whole_ns: f64,
    /// Of [`ConvolutionTime::whole_ns`], the turning.
    pub turning_ns: f64,
    /// Of [`ConvolutionTime::whole_ns`], the bias.
    pub bias_ns: f64,
    /// The product alone, with channels last.
    pub channels_last_ns: f64,
    /// Whether it is run with channels last as it is: some models turn their tensors themselves.
    pub is_channels_last: bool,
}

impl ConvolutionTime {
    /// Of a convolution as it was recorded.
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

    /// Of [`ConvolutionTime::whole_ns`], the product alone.
    pub fn product_ns(&self) -> f64 {
        self.whole_ns - self.turning_ns - self.bias_ns
    }
}

/// Convolutions that libraries treat alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvolutionKind {
    /// A window of one position.
    Pointwise,
    /// A larger one.
    Window,
    /// Of an image's few channels.
    Stem,
    /// Several groups with at most eight channels each.
    Groups8,
    /// With up to 32.
    Groups32,
    /// With more.
    WideGroups,
    /// A window for each channel, up to 3 x 3.
    Depthwise3,
    /// Up to 5 x 5.
    Depthwise5,
    /// Up to 7 x 7.
    Depthwise7,
    /// Larger.
    DepthwiseLarge,
}

impl ConvolutionKind {
    /// Whether each channel has a window of its own.
    pub fn is_depthwise(self) -> bool {
        matches!(
            self,
            ConvolutionKind::Depthwise3
                | ConvolutionKind::Depthwise5
                | ConvolutionKind::Depthwise7
                | ConvolutionKind::DepthwiseLarge
        )
    }

    /// `None` of what is no convolution.
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
