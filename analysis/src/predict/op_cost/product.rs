//! Kernels that multiply matrices tile by tile. Multiprocessors take tiles in waves, so that a
//! wave that is not full costs as much as a full one (NVIDIA, "Matrix Multiplication Background
//! User's Guide", sections on tile and wave quantization).

use super::Context;
use super::stream::{floor_seconds, memory_seconds};
use super::sustained;
use crate::predict::device_spec::DeviceKind;
use crate::predict::operator::ElementType;

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
        let (rate, tensor_cores) = sustained::rate(self.element, self.tf32, context);
        let unaligned = tensor_cores && !self.is_aligned();
        let slower = if unaligned { products.unaligned } else { 1.0 };
        let rate = rate * products.efficiency(self.kind, tensor_cores) / slower;
        let compute = match context.device.kind {
            DeviceKind::Gpu => self.tiled_seconds(rate, tensor_cores, context),
            DeviceKind::Cpu => self.flops() / rate.max(1.0),
        };
        let memory = memory_seconds(self.bytes, context) / products.bandwidth;
        let steps = match self.kind {
            Kind::Recurrent { steps } => steps.max(1.0),
            _ => 1.0,
        };
        floor_seconds(context) * steps + norm(compute, memory, products.overlap)
    }

    /// Whether its kernel runs on tensor cores, for which channels lie next to each other.
    pub(super) fn wants_channels_last(&self, context: &Context) -> bool {
        context.device.kind == DeviceKind::Gpu
            && sustained::rate(self.element, self.tf32, context).1
    }

    fn flops(&self) -> f64 {
        2.0 * self.batch * self.rows * self.columns * self.inner
    }

    /// Tensor cores want rows that begin at multiples of sixteen bytes.
    fn is_aligned(&self) -> bool {
        let multiple = 16.0 / self.element.bytes();
        let unaligned = |size: f64| size % multiple != 0.0;
        match self.kind {
            Kind::Matrix | Kind::Batched => !unaligned(self.columns) && !unaligned(self.inner),
            _ => true,
        }
    }

    /// By the tiles that take the least, which is what libraries' heuristics look for.
    fn tiled_seconds(&self, rate: f64, tensor_cores: bool, context: &Context) -> f64 {
        let products = &context.coefficients.product;
        let units = f64::from(context.device.multiprocessors.max(1));
        let load = if tensor_cores { products.tile_load } else { products.tile_load_scalar };
        let mut best = f64::INFINITY;
        for (tile_rows, tile_columns) in TILES {
            let tiles =
                self.batch * (self.rows / tile_rows).ceil() * (self.columns / tile_columns).ceil();
            // Smaller tiles load more for each multiplication.
            let slower = 1.0 + load * (1.0 / tile_rows + 1.0 / tile_columns);
            let per_element = 2.0 * tile_rows * tile_columns * slower * units / rate;
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
