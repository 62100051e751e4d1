//! Kernels that multiply matrices tile by tile. Multiprocessors take tiles in waves, so that a
//! wave that is not full costs as much as a full one (NVIDIA, "Matrix Multiplication Background
//! User's Guide", sections on tile and wave quantization).

use super::Context;
use super::stream::{floor_seconds, memory_seconds};
use super::sustained::Sustained;
use crate::operator::ElementType;
use ridgeline_devices::device_spec::DeviceKind;

/// Whose product it is, which says how near it comes to the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Matrix,
    Batched,
    /// The window is one position.
    Pointwise(Pass),
    Window(Pass),
    /// Few channels in, as of an image.
    Stem(Pass),
    Grouped(Pass),
    Attention,
    AttentionBackward,
    /// Rows of so many steps that wait for each other.
    Recurrent {
        steps: f64,
    },
}

/// What a convolution computes.
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
pub(super) struct Product {
    pub kind: Kind,
    pub batch: f64,
    pub rows: f64,
    pub columns: f64,
    pub inner: f64,
    /// Of what is multiplied.
    pub element: ElementType,
    /// Whether FP32 may be multiplied in TF32.
    pub tf32: bool,
    /// That have to move at the least.
    pub bytes: f64,
    /// Whether the rows of all three matrices, as they lie in memory, begin at multiples of sixteen
    /// bytes, which tensor cores want.
    pub aligned: bool,
}

/// Tiles of an output, rows by columns, as libraries have kernels for.
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

/// Into so many parts the inner dimension is cut, where there are too few tiles for the device.
const SPLITS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Parts of the inner dimension have at least so many elements.
const SHORTEST_PART: f64 = 128.0;

impl Product {
    /// Seconds.
    pub(super) fn seconds(&self, context: &Context) -> f64 {
        let products = &context.coefficients.product;
        let compute = match context.device.kind {
            DeviceKind::Gpu => self.tiled_seconds(context),
            DeviceKind::Cpu => {
                let sustained = Sustained::of(self.element, self.tf32, context);
                let share = products.efficiency(self.kind, sustained.tensor_cores);
                self.flops() / sustained.rate(share).max(1.0)
            }
        };
        let memory = memory_seconds(self.bytes, context) / products.bandwidth;
        let steps = match self.kind {
            Kind::Recurrent { steps } => steps.max(1.0),
            _ => 1.0,
        };
        let both = match context.device.kind {
            DeviceKind::Gpu => norm(compute, memory, products.overlap),
            // A core that waits for memory multiplies nothing meanwhile.
            DeviceKind::Cpu => compute + memory,
        };
        floor_seconds(context) * steps + both
    }

    /// Whether its kernel runs on tensor cores, for which channels lie next to each other.
    pub(super) fn wants_channels_last(&self, context: &Context) -> bool {
        context.device.kind == DeviceKind::Gpu
            && Sustained::of(self.element, self.tf32, context).tensor_cores
    }

    fn flops(&self) -> f64 {
        2.0 * self.batch * self.rows * self.columns * self.inner
    }

    /// By the tiles that take the least, which is what libraries' heuristics look for.
    fn tiled_seconds(&self, context: &Context) -> f64 {
        let products = &context.coefficients.product;
        let sustained = Sustained::of(self.element, self.tf32, context);
        let share = products.efficiency(self.kind, sustained.tensor_cores);
        let units = f64::from(context.device.multiprocessors.max(1));
        // Rows that do not begin at such multiples are loaded number by number.
        let singly = if sustained.tensor_cores && !self.aligned {
            1.0 / (products.unaligned * units * context.device.clock_hz())
        } else {
            0.0
        };
        let mut best = f64::INFINITY;
        for (tile_rows, tile_columns) in TILES {
            let tiles =
                self.batch * (self.rows / tile_rows).ceil() * (self.columns / tile_columns).ceil();
            // Smaller tiles load more for each multiplication.
            let slower = 1.0 + sustained.load * (1.0 / tile_rows + 1.0 / tile_columns);
            let per_operation = 1.0 / sustained.rate(share / slower).max(1.0) + singly;
            let per_element = 2.0 * tile_rows * tile_columns * units * per_operation;
            for split in SPLITS {
                let inner = (self.inner / split).ceil();
                if split > 1.0 && (inner < SHORTEST_PART || tiles * split > 4.0 * units) {
                    break;
                }
                let full = tiles * split / units;
                let waves = if full > 1.0 {
                    full + products.quantization * (full.ceil() - full)
                } else {
                    1.0
                };
                let mut seconds = waves * per_element * (inner + products.prologue);
                if split > 1.0 {
                    // Parts are written in FP32 and summed.
                    let parts = 8.0 * self.batch * self.rows * self.columns * split;
                    seconds += memory_seconds(parts, context);
                }
                best = best.min(seconds);
            }
        }
        best
    }
}

/// Between the larger of both, where they overlap fully, and their sum, where `p` is 1.
fn norm(a: f64, b: f64, p: f64) -> f64 {
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large <= 0.0 {
        return 0.0;
    }
    large * (1.0 + (small / large).powf(p)).powf(1.0 / p)
}
