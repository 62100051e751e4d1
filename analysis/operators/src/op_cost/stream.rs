//! Kernels that move bytes. Their time is memory time plus arithmetic time, on top of the time of
//! an empty kernel.

use super::Context;
use ridgeline_devices::device_spec::DeviceKind;

/// The access pattern of a kernel, which determines the share of the bandwidth that it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Elementwise,
    Broadcast,
    Random,
    Copy,
    Transpose,
    /// Transposes between channels first and channels_last, which cuDNN runs around its own
    /// kernels.
    Layout,
    Reduction,
    Softmax,
    SoftmaxBackward,
    LayerNorm,
    LayerNormBackward,
    BatchNorm,
    BatchNormBackward,
    BatchNormChannelsLast,
    BatchNormChannelsLastBackward,
    Gather,
    Scatter,
    Sort,
    Pooling,
    PoolingBackward,
    Depthwise,
    DepthwiseInput,
    DepthwiseWeight,
    Optimizer,
    Unknown,
}

/// A kernel that moves bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub kind: Kind,
    /// Bytes read and written, over all passes.
    pub bytes: f64,
    /// Operations outside tensor cores. 0 where they do not matter.
    pub flops: f64,
    pub window: Window,
}

/// The kind of kernel that runs a depthwise convolution's window size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// A kernel specialized for the window size.
    Specialized,
    /// A generic kernel.
    Generic,
    GenericChannelsLast,
}

impl Stream {
    /// Returns the time of the kernel in seconds.
    pub(super) fn seconds(&self, context: &Context) -> f64 {
        let streams = &context.coefficients.stream;
        let memory = memory_seconds(self.bytes, context) / streams.efficiency(self.kind);
        let rate = context.device.scalar_rate() * streams.arithmetic;
        let arithmetic = self.flops * self.slowdown(context) / rate.max(1.0);
        floor_seconds(context) + memory + arithmetic
    }

    /// Returns the slowdown of its arithmetic relative to the best depthwise kernel.
    fn slowdown(&self, context: &Context) -> f64 {
        let streams = &context.coefficients.stream;
        let pass = match self.kind {
            Kind::DepthwiseInput => streams.arithmetic_input,
            Kind::DepthwiseWeight => streams.arithmetic_weight,
            _ => 1.0,
        };
        pass * match self.window {
            Window::Specialized => 1.0,
            Window::Generic => streams.arithmetic_generic,
            Window::GenericChannelsLast => streams.arithmetic_generic_channels_last,
        }
    }
}

/// Returns the time of an empty kernel in seconds.
pub(super) fn floor_seconds(context: &Context) -> f64 {
    match context.device.kind {
        DeviceKind::Gpu => context.coefficients.floor_ns / 1e9,
        DeviceKind::Cpu => context.coefficients.cpu_floor_ns / 1e9,
    }
}

/// Returns the time to move bytes at the full rate, in seconds. What fits the last-level cache is
/// likely still there from the previous kernel and is not read from memory. That share falls as the
/// bytes outgrow the cache.
pub(super) fn memory_seconds(bytes: f64, context: &Context) -> f64 {
    let device = context.device;
    let bandwidth = bandwidth(context);
    let Some(cache) = device.l2_bytes.filter(|bytes| *bytes > 0.0) else {
        return bytes / bandwidth;
    };
    let coefficients = &context.coefficients.cache;
    let cached_share = (coefficients.share * cache / bytes.max(1.0)).min(1.0);
    let faster = coefficients.speed.max(1.0);
    bytes / bandwidth * (1.0 - cached_share + cached_share / faster)
}

/// Returns the bytes per second that the best kernel reaches: measured, or else a share of the
/// datasheet's.
fn bandwidth(context: &Context) -> f64 {
    let device = context.device;
    let measured = device.ceilings.and_then(|ceilings| ceilings.bandwidth);
    let share = context.coefficients.attainable.share(device.capability());
    measured.filter(|rate| *rate > 0.0).unwrap_or(device.bandwidth * share).max(1.0)
}
