//! Kernels that move bytes: their time is that of memory and of what arithmetic they do beside,
//! and no less than a kernel takes that does nothing.

use super::Context;
use ridgeline_devices::device_spec::DeviceKind;

/// What a kernel does with the bytes, which says how near it comes to the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Elementwise,
    Broadcast,
    Random,
    Copy,
    Transpose,
    /// Between channels first and channels last, as cuDNN does it around its own kernels.
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
    /// Read and written, passes counted.
    pub bytes: f64,
    /// Operations outside tensor cores, where they matter.
    pub flops: f64,
    pub window: Window,
}

/// Which kernel there is for a depthwise convolution's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    /// One that was written for it.
    Written,
    /// One for any window.
    Generic,
    GenericChannelsLast,
}

impl Stream {
    /// Seconds.
    pub(super) fn seconds(&self, context: &Context) -> f64 {
        let streams = &context.coefficients.stream;
        let memory = memory_seconds(self.bytes, context) / streams.efficiency(self.kind);
        let rate = context.device.scalar_rate() * streams.arithmetic;
        let arithmetic = self.flops * self.slower(context) / rate.max(1.0);
        floor_seconds(context) + memory + arithmetic
    }

    /// How many times slower its arithmetic is than that of the best depthwise kernel.
    fn slower(&self, context: &Context) -> f64 {
        let streams = &context.coefficients.stream;
        let pass = match self.kind {
            Kind::DepthwiseInput => streams.arithmetic_input,
            Kind::DepthwiseWeight => streams.arithmetic_weight,
            _ => 1.0,
        };
        pass * match self.window {
            Window::Written => 1.0,
            Window::Generic => streams.arithmetic_generic,
            Window::GenericChannelsLast => streams.arithmetic_generic_channels_last,
        }
    }
}

/// Seconds of a kernel that does nothing.
pub(super) fn floor_seconds(context: &Context) -> f64 {
    match context.device.kind {
        DeviceKind::Gpu => context.coefficients.floor_ns / 1e9,
        DeviceKind::Cpu => context.coefficients.cpu_floor_ns / 1e9,
    }
}

/// Seconds that bytes take at the full rate. What fits the last cache is likely still in it from
/// the kernel before, and does not go to memory: the share that stays falls as the bytes outgrow
/// the cache.
pub(super) fn memory_seconds(bytes: f64, context: &Context) -> f64 {
    let device = context.device;
    let bandwidth = bandwidth(context);
    let Some(cache) = device.l2_bytes.filter(|bytes| *bytes > 0.0) else {
        return bytes / bandwidth;
    };
    let coefficients = &context.coefficients.cache;
    let held = (coefficients.share * cache / bytes.max(1.0)).min(1.0);
    let faster = coefficients.speed.max(1.0);
    bytes / bandwidth * (1.0 - held + held / faster)
}

/// Bytes per second that the best kernel reaches: as measured, else a share of the datasheet's.
fn bandwidth(context: &Context) -> f64 {
    let device = context.device;
    let measured = device.ceilings.and_then(|ceilings| ceilings.bandwidth);
    let share = context.coefficients.attainable.share(device.capability());
    measured.filter(|rate| *rate > 0.0).unwrap_or(device.bandwidth * share).max(1.0)
}
