//! Predicts the step time on one GPU from that on another: inference of `timm` models.

use std::collections::BTreeMap;

use super::{Cases, Question, TargetErrors};
use crate::case::{Case, ListSource, Prediction, Task, Unanswered};
use crate::device_name::named;
use crate::ground_truth::GroundTruth;
use crate::list_request::ListRequest;
use crate::timm_results::{TimmResults, TimmRow};
use crate::trivial::Guess;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_predict::step_scaling::{MeasuredStep, scale_step};
use ridgeline_profile::Phase;

/// The coefficients were fitted on both GPUs of the pair, but with held-out model families.
pub(super) struct KnownTarget;

/// No coefficient was fitted on the target GPU.
pub(super) struct UnseenTarget;

const AMPERE: &str = "RTX3090";
const ADA: &str = "RTX4090";

impl Question for KnownTarget {
    fn id(&self) -> &'static str {
        "rtx3090_to_rtx4090"
    }

    fn title(&self) -> &'static str {
        "From an RTX 3090 to an RTX 4090: inference"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.07, median: None, aim: 0.04 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        pairs(truth, devices, AMPERE, |target| target == ADA)
    }
}

impl Question for UnseenTarget {
    fn id(&self) -> &'static str {
        "rtx4090_to_unseen"
    }

    fn title(&self) -> &'static str {
        "From an RTX 4090 to GPUs that nothing was fitted on: inference"
    }

    fn bar(&self) -> TargetErrors {
        TargetErrors { mean: 0.08, median: None, aim: 0.05 }
    }

    fn cases(&self, truth: &GroundTruth, devices: &'static DeviceTable) -> Cases {
        pairs(truth, devices, ADA, |target| target != ADA && target != AMPERE)
    }
}

/// Pairs each result file of a target with the file of `source` that was run in the same way, with
/// the nearest versions.
fn pairs(
    truth: &GroundTruth,
    devices: &'static DeviceTable,
    source: &str,
    is_target: impl Fn(&str) -> bool,
) -> Cases {
    let mut found = Cases::default();
    let mut sources = Vec::new();
    let mut targets = Vec::new();
    for results in truth.timm.iter().filter(|results| !results.name.train) {
        match named(&results.name.gpu, devices) {
            None => {
                let why = format!("no GPU of the table is called {}", results.name.gpu);
                found.pass_over(why, results.rows.len());
            }
            Some(gpu) if gpu.device.name == source => sources.push((results, gpu.device)),
            Some(gpu) if is_target(&gpu.device.name) => targets.push((results, gpu.device)),
            Some(_) => {}
        }
    }
    for (to, to_device) in targets {
        let candidates = sources.iter().filter(|(from, _)| from.name.runs_like(&to.name));
        let nearest = candidates.min_by(|(one, _), (other, _)| {
            let distance = |from: &TimmResults| from.name.version_distance(&to.name);
            distance(one)
                .partial_cmp(&distance(other))
                .unwrap_or(std::cmp::Ordering::Equal)
                .then_with(|| one.file.cmp(&other.file))
        });
        let Some((from, from_device)) = nearest else {
            found.pass_over(format!("no file of {source} was run like {}", to.file), to.rows.len());
            continue;
        };
        if to.name.precision != "amp" {
            let why = format!("lists are made for AMP alone, not for {}", to.name.precision);
            found.pass_over(why, to.rows.len());
            continue;
        }
        let rows: BTreeMap<(&str, u32), &TimmRow> =
            from.rows.iter().map(|row| ((row.model.as_str(), row.size), row)).collect();
        for row in &to.rows {
            let Some(start) = rows.get(&(row.model.as_str(), row.size)) else {
                found.pass_over(format!("{} has no such row", from.file), 1);
                continue;
            };
            let mut group = format!("{} to {}", from_device.name, to_device.name);
            // Libraries change between versions, which a ratio of two GPUs does not account for.
            if let (Some(one), Some(other)) = (from.name.torch, to.name.torch)
                && one != other
            {
                group.push_str(&format!(", torch {one} to {other}"));
            }
            for (flag, word) in
                [(to.name.channels_last, "channels_last"), (to.name.compiled, "torch.compile")]
            {
                if flag {
                    group.push_str(&format!(", {word}"));
                }
            }
            let task = FromMeasured {
                model: row.model.clone(),
                size: row.size,
                channels_last: to.name.channels_last,
                compiled: to.name.compiled,
                from_batch: start.batch,
                from_milliseconds: start.step_milliseconds,
                from: from_device,
                to_batch: row.batch,
                to: to_device,
            };
            let label = format!("{}: {} at {}", to.file, row.model, row.size);
            found.cases.push(Case::new(label, group, Box::new(task), row.step_milliseconds));
        }
    }
    found
}

struct FromMeasured {
    model: String,
    size: u32,
    channels_last: bool,
    compiled: bool,
    from_batch: u32,
    from_milliseconds: f64,
    from: &'static DeviceSpec,
    to_batch: u32,
    to: &'static DeviceSpec,
}

impl FromMeasured {
    fn request(&self, batch: u32) -> ListRequest {
        ListRequest::Timm {
            model: self.model.clone(),
            size: self.size,
            batch,
            train: false,
            channels_last: self.channels_last,
            fused_attention: true,
            foreach: false,
            keeps_gradients: false,
        }
    }
}

impl Task for FromMeasured {
    fn lists(&self) -> Vec<ListRequest> {
        let mut lists = vec![self.request(self.from_batch)];
        if self.to_batch != self.from_batch {
            lists.push(self.request(self.to_batch));
        }
        lists
    }

    fn predict(&self, lists: &dyn ListSource) -> Result<Prediction, Unanswered> {
        let get = |batch| {
            let list = lists.list(&self.request(batch));
            list.map_err(|why| Unanswered::new("no operator list", why))
        };
        let from_list = get(self.from_batch)?;
        let other_list =
            if self.to_batch == self.from_batch { None } else { Some(get(self.to_batch)?) };
        let to_list = other_list.as_ref().unwrap_or(&from_list);
        let measured = MeasuredStep {
            milliseconds: self.from_milliseconds,
            list: &from_list,
            device: self.from,
            compiled: self.compiled,
        };
        let phases = [Phase::Forward];
        let scaled = scale_step(&measured, to_list, self.to, &phases);
        let milliseconds = scaled
            .ok_or_else(|| Unanswered::new("no operator of it costs time", self.model.clone()))?;
        // The trivial predictions account for the number of images.
        let start = self.from_milliseconds * f64::from(self.to_batch) / f64::from(self.from_batch);
        let mut trivial = vec![
            Guess::plain("bandwidth ratio", start * self.from.bandwidth / self.to.bandwidth),
            Guess::fitted("best constant, fitted on the answers", start),
        ];
        if let (Some(from), Some(to)) = (self.from.peaks.fp16, self.to.peaks.fp16) {
            trivial.insert(1, Guess::plain("peak ratio", start * from / to));
        }
        Ok(Prediction { milliseconds, trivial })
    }
}
