//! Predicts a step on several GPUs from the same step on one, without a recording: the exchange
//! follows the step. With a recording, [`exchange`](super::exchange) is more precise.

use super::all_reduce::{self, Topology};
use ridgeline_operators::range::Range;

/// A step on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleStep {
    /// Time in milliseconds.
    pub milliseconds: f64,
    /// Bytes of gradients summed over the GPUs; 0 if none.
    pub gradient_bytes: f64,
    /// Time that the step waits for the input of each additional GPU if the host prepares batches
    /// too slowly, in milliseconds; otherwise 0.
    pub feeding_milliseconds: f64,
}

/// Coefficients fitted to public training throughput
/// (`analysis/evaluate/src/bin/fit_data_parallel`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Bandwidth per direction between GPUs that exchange through host memory, in bytes per second.
    pub through_host: f64,
    /// Delay of the slowest GPU, as a share of the step.
    pub waiting: f64,
    /// Exponent of all spreads such that nine of ten measured steps on GPUs not used in the fit are
    /// in range (conformal calibration).
    pub width: f64,
}

/// Fitted to 10 models in FP32 and FP16 on 1 to 8 V100, RTX 3090, A100 and H100 (lambdal/
/// deeplearning-benchmark, MIT): 220 pairs. `docs/accuracy.md` lists the errors.
pub const SHIPPED: Fitted = Fitted { through_host: 7.13e9, waiting: 0.0069, width: 1.42 };

/// Spread of the step time between machines.
const STEP_SPREAD: f64 = 1.02;
/// Spread of the time that batch preparation on the host adds.
const FEEDING_SPREAD: f64 = 2.0;

/// Returns the step time on all GPUs of a topology in milliseconds, with the range of nine in ten
/// cases. The exchange is counted in full: in the measured steps the backward pass hid none of it,
/// and even 10% overlap fits worse.
pub fn on_several(step: &SingleStep, topology: &Topology, fitted: &Fitted) -> Range {
    if topology.gpus <= 1 {
        return Range::exact(step.milliseconds);
    }
    let own = step.milliseconds * (1.0 + fitted.waiting);
    let feeding = step.feeding_milliseconds * f64::from(topology.gpus - 1);
    let exchange = if step.gradient_bytes > 0.0 {
        all_reduce::time_ns(step.gradient_bytes, topology) / 1e6
    } else {
        0.0
    };
    let part = |value: f64, spread: f64| Range::within_factor(value, spread.powf(fitted.width));
    part(own, STEP_SPREAD)
        .plus(part(exchange, topology.slowest_link().spread))
        .plus(part(feeding, FEEDING_SPREAD))
}

/// Inverts [`on_several`]: returns the step time on one GPU in milliseconds, from the time on all
/// of them. `step` describes the exchange; its own time is ignored. The exchange never accounts for
/// a whole step.
pub fn on_one(milliseconds: f64, step: &SingleStep, topology: &Topology, fitted: &Fitted) -> f64 {
    /// The minimum share of computation in a step.
    const MIN_SHARE: f64 = 0.1;
    let total = |milliseconds: f64| {
        on_several(&SingleStep { milliseconds, ..*step }, topology, fitted).value
    };
    // Linear in the time on one GPU.
    let (exchange, slope) = (total(0.0), total(1.0) - total(0.0));
    ((milliseconds - exchange) / slope).max(MIN_SHARE * milliseconds / slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::links::Link;

    fn topology(gpus: u32) -> Topology {
        let link = Link { bandwidth: 1e10, latency_ns: 0.0, spread: 1.5 };
        Topology { gpus, per_machine: 8, link, network: link }
    }

    fn milliseconds(gpus: u32, gradient_bytes: f64) -> f64 {
        let step = SingleStep { milliseconds: 100.0, gradient_bytes, feeding_milliseconds: 0.0 };
        on_several(&step, &topology(gpus), &SHIPPED).value
    }

    #[test]
    fn a_single_gpu_keeps_its_time() {
        assert_eq!(milliseconds(1, 1e9), 100.0);
    }

    #[test]
    fn on_one_inverts_on_several() {
        let step = SingleStep { milliseconds: 0.0, gradient_bytes: 1e8, feeding_milliseconds: 3.0 };
        let several = SingleStep { milliseconds: 100.0, ..step };
        let all = on_several(&several, &topology(4), &SHIPPED).value;
        let found = on_one(all, &step, &topology(4), &SHIPPED);
        assert!((found - 100.0).abs() < 1e-6, "{found}");
        // An exchange that is longer than the step explains most of it.
        assert!(on_one(1.0, &step, &topology(4), &SHIPPED) > 0.0);
    }

    #[test]
    fn the_exchange_is_added_to_the_step() {
        let without_exchange = milliseconds(2, 0.0);
        let found = milliseconds(2, 1e9) - without_exchange;
        assert!((found - 100.0).abs() < 0.1, "{found}");
        assert!(milliseconds(8, 1e9) > milliseconds(4, 1e9));
    }

    #[test]
    fn the_range_grows_with_the_spread_of_the_link() {
        let step =
            SingleStep { milliseconds: 100.0, gradient_bytes: 1e9, feeding_milliseconds: 0.0 };
        let width = |spread: f64| {
            let mut topology = topology(4);
            topology.link.spread = spread;
            let range = on_several(&step, &topology, &SHIPPED);
            assert!(range.low < range.value && range.value < range.high, "{range:?}");
            range.high / range.low
        };
        assert!(width(2.0) > width(1.1));
    }
}
