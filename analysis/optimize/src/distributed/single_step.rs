//! From a step on one GPU to the same step on several, without a recording: what is exchanged takes
//! its time after the step. The [`exchange`](super::exchange) knows more where there is a recording.

use super::all_reduce::{self, Topology};
use ridgeline_operators::range::Range;

/// A step on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SingleStep {
    /// How long it takes, in milliseconds.
    pub milliseconds: f64,
    /// Bytes of gradients that are summed over the GPUs; 0 where nothing is.
    pub gradient_bytes: f64,
    /// Whether processes of the host have to feed the GPUs, and wait for one another.
    pub is_fed_by_host: bool,
}

/// What was fitted on public training throughput (`analysis/evaluate/src/bin/fit_data_parallel.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Bytes per second in each direction between GPUs that exchange through the host's memory.
    pub through_host: f64,
    /// The share of a step by which the slowest GPU is behind.
    pub waiting: f64,
    /// What each further GPU adds to a step that the host feeds, as a share of it.
    pub feeding: f64,
}

/// Fitted on 10 models in FP32 and FP16 on 1 to 8 V100, RTX 3090, A100 and H100 (lambdal/
/// deeplearning-benchmark, MIT): 220 pairs. Mean error in sample 4.5%; with each GPU held out in turn
/// 6.4%, with each model 5.0%; guesses from before any fit 5.0%; linear scaling errs by 11.7%.
pub const SHIPPED: Fitted = Fitted { through_host: 7.6e9, waiting: 0.0082, feeding: 0.0625 };

/// The exchange may be quicker or slower by this; with it four of five of the fitted pairs are in
/// range.
const EXCHANGE_SPREAD: f64 = 1.6;
/// And the step itself differs by this from machine to machine.
const STEP_SPREAD: f64 = 1.02;

/// Milliseconds of the step on all GPUs of a topology. The exchange is counted in full: in what it
/// was fitted on, none of it was hidden by the backward pass, as an overlap of even a tenth fits
/// worse.
pub fn on_several(step: &SingleStep, topology: &Topology, fitted: &Fitted) -> Range {
    if topology.gpus <= 1 {
        return Range::exact(step.milliseconds);
    }
    let fed = if step.is_fed_by_host { fitted.feeding } else { 0.0 };
    let others = f64::from(topology.gpus - 1);
    let own =
        |spread: f64| step.milliseconds * (1.0 + fitted.waiting) * (1.0 + fed * others * spread);
    let exchange = if step.gradient_bytes > 0.0 {
        all_reduce::time_ns(step.gradient_bytes, topology) / 1e6
    } else {
        0.0
    };
    Range {
        low: own(1.0 / EXCHANGE_SPREAD) / STEP_SPREAD + exchange / EXCHANGE_SPREAD,
        value: own(1.0) + exchange,
        high: own(EXCHANGE_SPREAD) * STEP_SPREAD + exchange * EXCHANGE_SPREAD,
    }
}

/// The other way: milliseconds of the step on one GPU that takes so many on all of them. `step` tells what
/// is exchanged; its own time is not looked at. What is exchanged never explains a step wholly.
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
        let link = Link { bandwidth: 1e10, latency_ns: 0.0 };
        Topology { gpus, per_machine: 8, link, network: link }
    }

    fn milliseconds(gpus: u32, gradient_bytes: f64) -> f64 {
        let step = SingleStep { milliseconds: 100.0, gradient_bytes, is_fed_by_host: false };
        on_several(&step, &topology(gpus), &SHIPPED).value
    }

    #[test]
    fn one_gpu_takes_what_it_took() {
        assert_eq!(milliseconds(1, 1e9), 100.0);
    }

    #[test]
    fn what_one_gpu_takes_is_found_again() {
        let step = SingleStep { milliseconds: 0.0, gradient_bytes: 1e8, is_fed_by_host: true };
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
}
