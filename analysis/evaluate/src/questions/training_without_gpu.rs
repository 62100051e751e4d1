//! Predicts a training step without any measurement, from its operators and the GPU's
//! specification.

use super::{Cases, Question, TargetErrors};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named;
use crate::ground_truth::GroundTruth;
use crate::list_request::ListRequest;
use crate::timm_file_name::Version;
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::step_cost::StepCost;
use ridgeline_profile::Phase;

/// The question about training steps of `timm` models.
pub(super) struct TrainingWithoutGpu;

/// The first torch version with fused attention, foreach optimizers, and a `zero_grad()` that frees
/// the gradients.
const TORCH_2: Version = Version(2, 0, 0);

impl Question for TrainingWithoutGpu {
    fn id(&self) -> &'static str {
        "training_without_gpu"
    }

    fn title(&self) -> &'static str {
        "No GPU at all: a training step from its operators and the specification"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.18, median: Some(0.09), aim: 0.09 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        let mut found = Cases::default();
        for results in truth.timm.iter().filter(|results| results.name.train) {
            let name = &results.name;
            let Some(gpu) = named(&name.gpu, devices) else {
                let why = format!("no GPU of the table is called {}", name.gpu);
                found.pass_over(why, results.rows.len());
                continue;
            };
            if name.precision != "amp" || name.compiled {
                let why = format!("{}: lists are made for AMP without torch.compile", results.file);
                found.pass_over(why, results.rows.len());
                continue;
            }
            let old = name.torch.is_some_and(|version| version < TORCH_2);
            let layout = if name.channels_last { "channels_last" } else { "contiguous" };
            for row in &results.rows {
                let request = ListRequest::Timm {
                    model: row.model.clone(),
                    size: row.size,
                    batch: row.batch,
                    train: true,
                    channels_last: name.channels_last,
                    fused_attention: !old,
                    foreach: !old,
                    keeps_gradients: old,
                };
                found.cases.push(Case::new(
                    format!("{}: {} at {}", results.file, row.model, row.size),
                    format!("{}, {layout}", gpu.device.name),
                    Box::new(FromSpecification { request, device: gpu.device }),
                    row.step_milliseconds,
                ));
            }
        }
        found
    }
}

struct FromSpecification {
    request: ListRequest,
    device: &'static DeviceSpec,
}

impl Task for FromSpecification {
    fn lists(&self) -> Vec<ListRequest> {
        vec![self.request.clone()]
    }

    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered> {
        let list =
            lists.list(&self.request).map_err(|why| Unanswered::new("no operator list", why))?;
        let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        let cost = StepCost::of(&list, &phases, self.device, &Options::default());
        Ok(Prediction {
            milliseconds: cost.kernels_ns.times(1e-6),
            trivial: vec![
                Guess::fitted("one constant per FLOP, fitted on the answers", cost.flops),
                Guess::fitted("one constant per byte, fitted on the answers", cost.bytes),
            ],
        })
    }
}
