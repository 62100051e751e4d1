//! From a step on one GPU to the same step on several, without a recording: what is exchanged takes
//! its time after the step. The [`exchange`](super::exchange) knows more where there is a recording.

use super::all_reduce::{self, Topology};
use ridgeline_operators::range::Range;

/// A step on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleStep {
    /// How long it takes, in milliseconds.
    pub milliseconds: f64,
    /// Bytes of gradients that are summed over the GPUs; 0 if none are.
    pub gradient_bytes: f64,
    /// Milliseconds that the step waits for the input of each further GPU, where the host prepares
    /// batches too slowly; else 0.
    pub feeding_milliseconds: f64,
}

/// What was fitted on public training throughput (`analysis/evaluate/src/bin/fit_data_parallel.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Bytes per second in each direction between GPUs that exchange through the host's memory.
    pub through_host: f64,
    /// The share of a step by which the slowest GPU is behind.
    pub waiting: f64,
    /// The exponent of all spreads with which nine of ten measured steps of GPUs that the fit did not
    /// see are in range (conformal calibration).
    pub width: f64,
}

/// Fitted on 10 models in FP32 and FP16 on 1 to 8 V100, RTX 3090, A100 and H100 (lambdal/
/// deeplearning-benchmark, MIT): 220 pairs. `docs/accuracy.md` has the errors.
pub const SHIPPED: Fitted = Fitted { through_host: 7.13e9, waiting: 0.0069, width: 1.42 };

/// A step itself differs by this from machine to machine.
const STEP_SPREAD: f64 = 1.02;
/// What the host adds by preparing batches differs by this.
const FEEDING_SPREAD: f64 = 2.0;

/// Milliseconds of the step on all GPUs of a topology, with the range that holds in nine of ten cases.
/// The exchange is counted in full: the backward pass hid none of it in the measured steps, where an
/// overlap of even a tenth fits worse.
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

/// The other way: milliseconds of the step on one GPU that takes so many on all of them. `step` says what
/// is exchanged; its own time is not used. The exchange never accounts for a whole step.
pub fn on_one(milliseconds: f64, step: &SingleStep, topology: &Topology, fitted: &Fitted) -> f64 {
    /// The share of a step that computes, at the least.
    const LEAST: f64 = 0.1;
    let whole = |milliseconds: f64| {
        on_several(&SingleStep { milliseconds, ..*step }, topology, fitted).value
    };
    // A straight line in the time on one.
    let (exchange, slope) = (whole(0.0), whole(1.0) - whole(0.0));
    ((milliseconds - exchange) / slope).max(LEAST * milliseconds / slope)
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
    fn one_gpu_takes_what_it_took() {
        assert_eq!(milliseconds(1, 1e9), 100.0);
    }

    #[test]
    fn what_one_gpu_takes_is_found_again() {
        let step = SingleStep { milliseconds: 0.0, gradient_bytes: 1e8, feeding_milliseconds: 3.0 };
        let several = SingleStep { milliseconds: 100.0, ..step };
        let all = on_several(&several, &topology(4), &SHIPPED).value;
        let found = on_one(all, &step, &topology(4), &SHIPPED);
        assert!((found - 100.0).abs() < 1e-6, "{found}");
        // An exchange that is longer than the step explains most of it.
        assert!(on_one(1.0, &step, &topology(4), &SHIPPED) > 0.0);
    }

    #[test]
    fn the_exchange_comes_on_top() {
        let alone = milliseconds(2, 0.0);
        let found = milliseconds(2, 1e9) - alone;
        assert!((found - 100.0).abs() < 0.1, "{found}");
        assert!(milliseconds(8, 1e9) > milliseconds(4, 1e9));
    }

    #[test]
    fn the_range_is_as_wide_as_what_is_known_of_the_link() {
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
