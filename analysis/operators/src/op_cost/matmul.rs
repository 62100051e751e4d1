//! Tiled matrix multiplication kernels. Multiprocessors take tiles in waves, and a partial wave
//! costs as much as a full one (NVIDIA, "Matrix Multiplication Background User's Guide", sections
//! on tile and wave quantization).

use super::Context;
use super::stream::{floor_seconds, memory_seconds};
use super::sustained::Sustained;
use crate::operator::ElementType;
use ridgeline_devices::device_spec::DeviceKind;

/// The operator that multiplies, which determines the share of the peak that is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Matrix,
    Batched,
    /// A convolution with a 1x1 window.
    Pointwise(Pass),
    /// A convolution with a larger window.
    Window(Pass),
    /// A convolution with few input channels, like an image's.
    Stem(Pass),
    Grouped(Pass),
    Attention,
    AttentionBackward,
    /// A recurrent layer with this number of dependent steps.
    Recurrent {
        steps: f64,
    },
}

/// The result that a convolution computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    /// The gradient of the input.
    Input,
    /// The gradient of the weight.
    Weight,
}

/// `[batch, rows, inner] x [batch, inner, columns]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matmul {
    pub kind: Kind,
    pub batch: f64,
    pub rows: f64,
    pub columns: f64,
    pub inner: f64,
    /// Element type of the operands.
    pub element: ElementType,
    /// Whether FP32 may be multiplied in TF32.
    pub tf32: bool,
    /// Minimum bytes moved.
    pub bytes: f64,
    /// Whether the rows of all three matrices start at multiples of 16 bytes in memory, as tensor
    /// cores require.
    pub aligned: bool,
}

/// Output tiles (rows, columns) for which libraries have kernels.
const TILES: [(f64, f64); 9] = [
    (256.0, 128.0),
    (128.0, 256.0),
    (128.0, 128.0),
    (128.0, 64.0),
    (64.0, 128.0),
    (64.0, 64.0),
    (64.0, 32.0),
    (32.0, 64.0),
    (32.0, 32.0),
];

/// The split-K factors: the inner dimension is split where there are too few tiles for the device.
const SPLITS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The minimum number of elements of the inner dimension in a split.
const MIN_SPLIT_ELEMENTS: f64 = 128.0;

impl Matmul {
    /// Returns the time of the kernel in seconds.
    pub(super) fn seconds(&self, context: &Context) -> f64 {
        let matmuls = &context.coefficients.product;
        let compute = match context.device.kind {
            DeviceKind::Gpu => self.tiled_seconds(context),
            DeviceKind::Cpu => {
                let sustained = Sustained::of(self.element, self.tf32, context);
                let share = matmuls.efficiency(self.kind, sustained.tensor_cores);
                self.flops() / sustained.rate(share).max(1.0)
            }
        };
        let memory = memory_seconds(self.bytes, context) / matmuls.bandwidth;
        let steps = match self.kind {
            Kind::Recurrent { steps } => steps.max(1.0),
            _ => 1.0,
        };
        let compute_and_memory = match context.device.kind {
            DeviceKind::Gpu => p_norm(compute, memory, matmuls.overlap),
            // A CPU core does not multiply while it waits for memory.
            DeviceKind::Cpu => compute + memory,
        };
        floor_seconds(context) * steps + compute_and_memory
    }

    /// Whether the kernel runs on tensor cores, which need channels_last.
    pub(super) fn wants_channels_last(&self, context: &Context) -> bool {
        context.device.kind == DeviceKind::Gpu
            && Sustained::of(self.element, self.tf32, context).tensor_cores
    }

    fn flops(&self) -> f64 {
        2.0 * self.batch * self.rows * self.columns * self.inner
    }

    /// Returns the time with the fastest tile size, which is what the heuristics of the libraries
    /// look for.
    fn tiled_seconds(&self, context: &Context) -> f64 {
        let matmuls = &context.coefficients.product;
        let sustained = Sustained::of(self.element, self.tf32, context);
        let share = matmuls.efficiency(self.kind, sustained.tensor_cores);
        let units = f64::from(context.device.multiprocessors.max(1));
        // Unaligned rows are loaded element by element.
        let unaligned_seconds = if sustained.tensor_cores && !self.aligned {
            1.0 / (matmuls.unaligned * units * context.device.clock_hz())
        } else {
            0.0
        };
        let mut best = f64::INFINITY;
        for (tile_rows, tile_columns) in TILES {
            let tiles =
                self.batch * (self.rows / tile_rows).ceil() * (self.columns / tile_columns).ceil();
            // Smaller tiles load more per multiplication.
            let slower = 1.0 + sustained.load * (1.0 / tile_rows + 1.0 / tile_columns);
            let per_operation = 1.0 / sustained.rate(share / slower).max(1.0) + unaligned_seconds;
            let per_element = 2.0 * tile_rows * tile_columns * units * per_operation;
            for split in SPLITS {
                let inner = (self.inner / split).ceil();
                if split > 1.0 && (inner < MIN_SPLIT_ELEMENTS || tiles * split > 4.0 * units) {
                    break;
                }
                let full = tiles * split / units;
                let waves = if full > 1.0 {
                    full + matmuls.quantization * (full.ceil() - full)
                } else {
                    1.0
                };
                let mut seconds = waves * per_element * (inner + matmuls.prologue);
                if split > 1.0 {
                    // Partial results are written in FP32 and summed.
                    let parts = 8.0 * self.batch * self.rows * self.columns * split;
                    seconds += memory_seconds(parts, context);
                }
                best = best.min(seconds);
            }
        }
        best
    }
}

/// Returns a value between the larger of both (full overlap) and their sum (`p` = 1, no overlap).
fn p_norm(a: f64, b: f64, p: f64) -> f64 {
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 {
        return 0.0;
    }
    large * (1.0 + (small / large).powf(p)).powf(1.0 / p)
}
