//! Predicts FP16 mixed-precision training throughput from that in FP32 on the same machine.

use std::collections::BTreeMap;

use super::data_parallel::topology;
use super::{Cases, Question, TargetErrors};
use crate::benchmark_facts::{Benchmark, UNPUBLISHED, benchmark};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named_with_power;
use crate::ground_truth::GroundTruth;
use crate::lambda_results::LambdaRow;
use crate::list_request::ListRequest;
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::range::Range;
use ridgeline_optimize::distributed::single_step::{SHIPPED, SingleStep, on_one, on_several};
use ridgeline_optimize::optimizations::shared::factors;
use ridgeline_optimize::optimizations::shared::mixed_precision;
use ridgeline_optimize::optimizations::shared::parts::Machine;

/// The question about the models in the tables of `lambda/`.
pub(super) struct MixedPrecision;

/// The measured containers enable TF32 if the GPU supports it.
const OPTIONS: Options = Options { tf32_matmuls: true, tf32_convolutions: true };

/// Programs that compute in FP32 even with mixed precision: on every GPU in the public tables they
/// take the same time in both. This is learned from the measurements and could not be known without
/// them.
const FP32_ONLY: [&str; 2] = ["tacotron2", "waveglow"];

impl Question for MixedPrecision {
    fn id(&self) -> &'static str {
        "mixed_precision"
    }

    fn title(&self) -> &'static str {
        "What mixed precision brings: FP32 to FP16, training"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.10, median: None, aim: 0.06 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        let mut found = Cases::default();
        let key = |row: &LambdaRow| (row.machine.clone(), row.gpus, row.model.clone());
        let single: BTreeMap<_, &LambdaRow> =
            truth.lambda.iter().filter(|row| !row.half).map(|row| (key(row), row)).collect();
        for after in truth.lambda.iter().filter(|row| row.half) {
            let Some(before) = single.get(&key(after)) else {
                found.pass_over("there is no such row in FP32", 1);
                continue;
            };
            let Some(gpu) = named_with_power(&after.gpu, after.watts, devices) else {
                found.pass_over(format!("no GPU of the table is called {}", after.gpu), 1);
                continue;
            };
            let Some(program) = benchmark(&after.model) else {
                found.pass_over(format!("nothing is known of the program {}", after.model), 1);
                continue;
            };
            let milliseconds = |row: &LambdaRow| {
                program.step_milliseconds(f64::from(row.batch), row.gpus, row.per_second)
            };
            let task = ToHalf {
                model: after.model.clone(),
                program,
                gpus: after.gpus,
                device: gpu.device,
                before_batch: (before.batch / before.gpus).max(1),
                after_batch: (after.batch / after.gpus).max(1),
                before_milliseconds: milliseconds(before),
            };
            let group = if after.gpus == 1 { "one GPU" } else { "several GPUs" };
            found.cases.push(Case::new(
                format!("{} x {}: {}", after.gpus, after.machine, after.model),
                group.to_owned(),
                Box::new(task),
                milliseconds(after),
            ));
        }
        found
    }
}

struct ToHalf {
    model: String,
    program: &'static Benchmark,
    gpus: u32,
    device: &'static DeviceSpec,
    /// Samples per step on each GPU.
    before_batch: u32,
    after_batch: u32,
    before_milliseconds: f64,
}

impl ToHalf {
    fn is_fp32_only(&self) -> bool {
        FP32_ONLY.contains(&self.model.as_str())
    }

    /// The communication between GPUs, without the time of the step itself.
    fn exchange(&self, half: bool) -> SingleStep {
        let batch = if half { self.after_batch } else { self.before_batch };
        SingleStep {
            milliseconds: 0.0,
            gradient_bytes: self.program.gradient_bytes(half),
            feeding_milliseconds: self.program.feeding_milliseconds(f64::from(batch), &UNPUBLISHED),
        }
    }
}

impl Task for ToHalf {
    fn lists(&self) -> Vec<ListRequest> {
        if self.is_fp32_only() {
            return Vec::new();
        }
        let request =
            |batch, half| ListRequest::Benchmark { model: self.model.clone(), batch, half };
        vec![request(self.before_batch, false), request(self.after_batch, true)]
    }

    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered> {
        let factors = factors::mixed_precision();
        let samples = f64::from(self.after_batch) / f64::from(self.before_batch);
        // Communication is not an operator of the step, so remove it before scaling and add it
        // afterwards.
        let topology = topology(self.device, self.gpus, &SHIPPED);
        let before = on_one(self.before_milliseconds, &self.exchange(false), &topology, &SHIPPED);
        let mut after = before;
        if let [single, half] = self.lists().as_slice() {
            let get = |request| {
                lists.list(request).map_err(|why| Unanswered::new("no operator list", why))
            };
            let machine = Machine { device: self.device, options: OPTIONS };
            let parts = mixed_precision::parts(&get(single)?, &get(half)?, samples, &machine);
            after = factors
                .step_ns(before * 1e6, &parts)
                .ok_or_else(|| Unanswered::new("no operator of it costs time", ""))?
                / 1e6;
        }
        // The trivial predictions account for the number of samples.
        let start = self.before_milliseconds * samples;
        let step = SingleStep { milliseconds: after * samples, ..self.exchange(true) };
        let several = on_several(&step, &topology, &SHIPPED);
        Ok(Prediction {
            milliseconds: within_both(several, factors.range),
            trivial: vec![
                Guess::plain("twice as fast", start / 2.0),
                Guess::fitted("best constant, fitted on the answers", start),
            ],
        })
    }
}

/// Widens a range by an independent factor: the logarithms of both factors are added in quadrature.
fn within_both(range: Range, factor: f64) -> Range {
    let joined = |other: f64| factor.max(1.0).ln().hypot(other.max(1.0).ln()).exp();
    Range {
        low: range.value / joined(range.value / range.low),
        value: range.value,
        high: range.value * joined(range.high / range.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn independent_factors_widen_a_range_by_less_than_their_product() {
        let found = within_both(Range::within_factor(10.0, 1.2), 1.2);
        let factor = (2.0_f64.sqrt() * 1.2_f64.ln()).exp();
        assert!((found.high - 10.0 * factor).abs() < 1e-9, "{found:?}");
        assert!((found.low - 10.0 / factor).abs() < 1e-9, "{found:?}");
        assert_eq!(within_both(Range::exact(10.0), 1.0), Range::exact(10.0));
    }
}
