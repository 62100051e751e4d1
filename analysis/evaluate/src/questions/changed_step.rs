//! Predicts a measured step with one change on the same GPU: the speedup of `torch.compile` and of
//! `channels_last`.

use std::collections::BTreeMap;

use super::{Cases, Question, TargetErrors};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named;
use crate::ground_truth::GroundTruth;
use crate::list_request::ListRequest;
use crate::timm_file_name::{TimmFileName, Version};
use crate::timm_results::{TimmResults, TimmRow};
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::range::Range;
use ridgeline_optimize::optimizations::shared::factors::{self, Factors};
use ridgeline_optimize::optimizations::shared::parts::{Machine, Part};
use ridgeline_optimize::optimizations::shared::{channels_last, compiled};

/// A change, and the question about it.
pub(super) struct Change {
    id: &'static str,
    title: &'static str,
    bar: TargetErrors,
    /// Whether it is about training rather than inference.
    train: bool,
    /// Returns whether a file was run with the change.
    has: fn(&TimmFileName) -> bool,
    /// Returns the name of the same file without the change.
    without: fn(&TimmFileName) -> TimmFileName,
    parts: fn(&OpList, &Machine<'_>) -> Vec<Part>,
    factors: fn() -> &'static Factors,
}

/// `torch.compile`, in inference.
pub(super) const COMPILE: Change = Change {
    id: "torch_compile",
    title: "What torch.compile brings: inference",
    bar: TargetErrors { mean: 0.13, median: None, aim: 0.09 },
    train: false,
    has: |name| name.compiled,
    without: |name| TimmFileName { compiled: false, ..name.clone() },
    parts: compiled::step,
    factors: factors::compiled,
};

/// `channels_last`, in training.
pub(super) const CHANNELS_LAST: Change = Change {
    id: "channels_last",
    title: "What channels_last brings: training",
    bar: TargetErrors { mean: 0.15, median: None, aim: 0.10 },
    train: true,
    has: |name| name.channels_last,
    without: |name| TimmFileName { channels_last: false, ..name.clone() },
    parts: channels_last::step,
    factors: factors::channels_last,
};

/// The first torch version with fused attention, foreach optimizers, and a `zero_grad()` that frees
/// the gradients.
const TORCH_2: Version = Version(2, 0, 0);

impl Question for Change {
    fn id(&self) -> &'static str {
        self.id
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn bar(&self) -> TargetErrors {
        self.bar
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        let mut found = Cases::default();
        let changed =
            |results: &&TimmResults| results.name.train == self.train && (self.has)(&results.name);
        for after in truth.timm.iter().filter(changed) {
            let name_without = (self.without)(&after.name);
            let Some(before) = truth.timm.iter().find(|results| results.name == name_without)
            else {
                let why = format!("no file was run like {} without the change", after.file);
                found.pass_over(why, after.rows.len());
                continue;
            };
            let Some(gpu) = named(&after.name.gpu, devices) else {
                let why = format!("no GPU of the table is called {}", after.name.gpu);
                found.pass_over(why, after.rows.len());
                continue;
            };
            if after.name.precision != "amp" {
                let why = format!("lists are made for AMP alone, not for {}", after.name.precision);
                found.pass_over(why, after.rows.len());
                continue;
            }
            self.pairs(before, after, gpu.device, &mut found);
        }
        found
    }
}

impl Change {
    fn pairs(
        &self,
        before: &TimmResults,
        after: &TimmResults,
        device: &'static DeviceSpec,
        found: &mut Cases,
    ) {
        let rows: BTreeMap<(&str, u32), &TimmRow> =
            before.rows.iter().map(|row| ((row.model.as_str(), row.size), row)).collect();
        let old = after.name.torch.is_some_and(|version| version < TORCH_2);
        let torch = after.name.torch.map_or(String::new(), |version| format!(", torch {version}"));
        for row in &after.rows {
            let Some(start) = rows.get(&(row.model.as_str(), row.size)) else {
                found.pass_over(format!("{} has no such row", before.file), 1);
                continue;
            };
            let task = ChangedStep {
                request: ListRequest::Timm {
                    model: row.model.clone(),
                    size: row.size,
                    batch: start.batch,
                    train: self.train,
                    channels_last: before.name.channels_last,
                    fused_attention: !old,
                    // Inference has neither an optimizer nor gradients.
                    foreach: self.train && !old,
                    keeps_gradients: self.train && old,
                },
                device,
                before_milliseconds: start.step_milliseconds,
                images: f64::from(row.batch) / f64::from(start.batch),
                parts: self.parts,
                factors: self.factors,
            };
            found.cases.push(Case::new(
                format!("{}: {} at {}", after.file, row.model, row.size),
                format!("{}{torch}", device.name),
                Box::new(task),
                row.step_milliseconds,
            ));
        }
    }
}

struct ChangedStep {
    /// The step without the change.
    request: ListRequest,
    device: &'static DeviceSpec,
    before_milliseconds: f64,
    /// The number of images in the step with the change, relative to the step without it.
    images: f64,
    parts: fn(&OpList, &Machine<'_>) -> Vec<Part>,
    factors: fn() -> &'static Factors,
}

impl Task for ChangedStep {
    fn lists(&self) -> Vec<ListRequest> {
        vec![self.request.clone()]
    }

    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered> {
        let list =
            lists.list(&self.request).map_err(|why| Unanswered::new("no operator list", why))?;
        let machine = Machine { device: self.device, options: Options::default() };
        let factors = (self.factors)();
        let before_ns = self.before_milliseconds * 1e6;
        let after_ns = factors
            .step_ns(before_ns, &(self.parts)(&list, &machine))
            .ok_or_else(|| Unanswered::new("no operator of it costs time", ""))?;
        let milliseconds = Range::within_factor(after_ns * self.images / 1e6, factors.range);
        // The trivial predictions account for the number of images.
        let start = self.before_milliseconds * self.images;
        Ok(Prediction {
            milliseconds,
            trivial: vec![
                Guess::plain("no change", start),
                Guess::fitted("best constant, fitted on the answers", start),
            ],
        })
    }
}
