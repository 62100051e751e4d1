//! Predicts transformers on GPUs without measurements: forward, backward, and both.

use super::{Cases, Question, TargetErrors};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named;
use crate::ground_truth::GroundTruth;
use crate::list_request::ListRequest;
use crate::neusight_models::NeusightRow;
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_cost::{Options, cost};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::step_cost::{StepCost, counts};
use ridgeline_profile::Phase;

/// The question about NeuSight's transformers.
pub(super) struct Transformers;

/// FP32 only: TF32 was disabled in these measurements.
const OPTIONS: Options = Options { tf32_matmuls: false, tf32_convolutions: false };

impl Question for Transformers {
    fn id(&self) -> &'static str {
        "transformers"
    }

    fn title(&self) -> &'static str {
        "Transformers on GPUs without a measurement"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.10, median: None, aim: 0.066 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        let mut found = Cases::default();
        for row in &truth.transformers {
            let variant = row.variant.trim();
            let fused = variant.eq_ignore_ascii_case("fusion");
            if !variant.is_empty() && !fused {
                let why =
                    format!("variant {variant}: several GPUs and their links are not modelled");
                found.pass_over(why, 1);
                continue;
            }
            let Some(gpu) = named(&row.gpu, devices) else {
                found.pass_over(format!("no GPU of the table is called {}", row.gpu), 1);
                continue;
            };
            let Some(config) = truth.configs.get(&row.model) else {
                found.pass_over(format!("there is no configuration of {}", row.model), 1);
                continue;
            };
            let request = ListRequest::Transformer {
                model: row.model.clone(),
                config: config.clone(),
                sequence: row.sequence,
                batch: row.batch,
                train: row.train,
            };
            for (what, phases, measured) in parts(row) {
                let mode = if row.train { "train" } else { "infer" };
                let plus = if fused { ", fused" } else { "" };
                found.cases.push(Case::new(
                    format!(
                        "{}: {} {mode} {}x{}{plus}{what}",
                        row.gpu, row.model, row.batch, row.sequence
                    ),
                    format!("{}{plus}{what}", gpu.device.name),
                    Box::new(OneTransformer {
                        request: request.clone(),
                        device: gpu.device,
                        phases,
                        fused,
                    }),
                    measured,
                ));
            }
        }
        found
    }
}

/// The predictions for a row: the whole step, and for training also forward and backward
/// separately.
fn parts(row: &NeusightRow) -> Vec<(&'static str, Vec<Phase>, f64)> {
    if !row.train {
        return vec![("", vec![Phase::Forward], row.iteration_milliseconds)];
    }
    let both = vec![Phase::Forward, Phase::Backward];
    let mut parts = vec![("", both, row.iteration_milliseconds)];
    if let Some(forward) = row.forward_milliseconds {
        parts.push((", forward alone", vec![Phase::Forward], forward));
    }
    if let Some(backward) = row.backward_milliseconds {
        parts.push((", backward alone", vec![Phase::Backward], backward));
    }
    parts
}

struct OneTransformer {
    request: ListRequest,
    device: &'static DeviceSpec,
    phases: Vec<Phase>,
    fused: bool,
}

impl Task for OneTransformer {
    fn lists(&self) -> Vec<ListRequest> {
        vec![self.request.clone()]
    }

    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered> {
        if self.fused {
            let why = "which operators a compiler fuses is not modelled";
            return Err(Unanswered::new("variant fusion", why));
        }
        let list =
            lists.list(&self.request).map_err(|why| Unanswered::new("no operator list", why))?;
        let step = StepCost::of(&list, &self.phases, self.device, &OPTIONS);
        let mut trivial = Vec::new();
        if let Some(peak) = self.device.peaks.fp32 {
            trivial.push(Guess::plain(
                "roofline",
                roofline_ns(&list, &self.phases, self.device, peak) * 1e-6,
            ));
            trivial.push(Guess::fitted(
                "one share of peak, fitted on the answers",
                step.flops / peak * 1e3,
            ));
        }
        Ok(Prediction { milliseconds: step.kernels_ns.times(1e-6), trivial })
    }
}

/// The time of each operator at the peak rate or the full bandwidth, whichever is longer.
fn roofline_ns(list: &OpList, phases: &[Phase], device: &DeviceSpec, peak: f64) -> f64 {
    let mut sum = 0.0;
    for (signature, count) in counts(list, phases) {
        let Some(operator) = list.signatures.get(signature as usize) else { continue };
        let cost = cost(operator, device, &OPTIONS);
        sum += count * (cost.flops / peak).max(cost.bytes / device.bandwidth) * 1e9;
    }
    sum
}
