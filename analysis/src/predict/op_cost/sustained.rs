//! The rate that a device holds under load: of the type, measured where it was, and no more than
//! its power allows.

use super::Context;
use crate::predict::device_spec::{DeviceKind, DeviceSpec, Rates};
use crate::predict::operator::ElementType;

/// Operations per second, and whether they are those of tensor cores.
pub(super) fn rate(element: ElementType, tf32: bool, context: &Context) -> (f64, bool) {
    let device = context.device;
    let by_type: Option<fn(&Rates) -> Option<f64>> = match element {
        ElementType::Float16 => Some(|rates| rates.fp16),
        ElementType::BFloat16 => Some(|rates| rates.bf16),
        ElementType::Float8 => Some(|rates| rates.fp8),
        ElementType::Float32 if tf32 => Some(|rates| rates.tf32),
        _ => None,
    };
    let products = &context.coefficients.product;
    if let Some(by_type) = by_type
        && let Some(peak) = by_type(&device.peaks).filter(|rate| *rate > 0.0)
    {
        // Before 7.0 there are no tensor cores: FP16 runs where FP32 does, at another rate.
        let tensor_cores = device.kind == DeviceKind::Cpu
            || device.capability().is_none_or(|capability| capability >= (7, 0));
        if let Some(measured) = ceiling(device, by_type) {
            // A large square product was measured; the efficiency that one has is in it already.
            return (measured / products.large(tensor_cores), tensor_cores);
        }
        let limit = held(peak, products.tensor_joules, context);
        return (limit, tensor_cores);
    }
    if let Some(measured) = ceiling(device, |rates| rates.fp32) {
        return (measured / products.large(false), false);
    }
    (held(device.scalar_rate() * issued(context), products.scalar_joules, context), false)
}

/// A quarter of a multiprocessor issues one instruction of 32 lanes a cycle. Where it has 32 lanes
/// for FP32 (from 8.6 on), whatever a kernel does beside multiplying takes a multiplication's
/// place; where it has 16, every other cycle is free for that.
fn issued(context: &Context) -> f64 {
    match context.device.capability() {
        Some(capability) if capability >= (8, 6) => context.coefficients.product.issue,
        _ => 1.0,
    }
}

fn ceiling(device: &DeviceSpec, by_type: fn(&Rates) -> Option<f64>) -> Option<f64> {
    by_type(&device.ceilings?.gemm).filter(|rate| *rate > 0.0)
}

/// The peak is that of the boost clock, which a board with little power does not hold: each
/// operation takes energy, less with each generation of chips.
fn held(peak: f64, joules: f64, context: &Context) -> f64 {
    let Some(watts) = context.device.tdp_w.filter(|watts| *watts > 0.0) else { return peak };
    let limit = watts / (joules * process(context.device)).max(1e-15);
    // A soft minimum: clocks fall a little before the limit is reached.
    let p = 8.0;
    peak / (1.0 + (peak / limit).powf(p)).powf(1.0 / p)
}

/// Energy of an operation by the process that the chip is made in, 12 nm being 1. Only that one is
/// fitted (T4 and V100). The others are assumed: each step of a foundry is taken to save a third or
/// so at the same speed, as foundries announce it, and nothing here was measured. 10.x is taken low
/// enough that power does not bound its tensor cores below 80%.
fn process(device: &DeviceSpec) -> f64 {
    match device.capability() {
        Some((6, _)) => 1.1,
        Some((7, _)) => 1.0,
        Some((8, 0)) => 0.6,
        Some((8, 6 | 7)) => 0.7,
        Some((10, _)) => 0.25,
        Some((8 | 9 | 12, _)) => 0.42,
        Some((0..6, _)) => 2.0,
        _ => 0.42,
    }
}
