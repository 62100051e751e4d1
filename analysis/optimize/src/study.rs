//! All what-ifs of one recorded iteration, with notes on how reliable they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accuracy::{Correction, Pair, correction};
use super::facts::{Cluster, Facts, Probes};
use super::network::{self, NetworkReport};
use super::optimization::{Optimization, Prediction};
use super::optimizations::{self, shared::overhead};
use super::ranking::{WhatIfs, rank_until, sort};
use super::recompute_curve::{Point, curve};
use ridgeline_devices::cpu::cpu;
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_graph::calls::calls;
use ridgeline_graph::graph::Resource;
use ridgeline_graph::memory;
use ridgeline_graph::recorded::{Recorded, TRUSTED_REPLAY};
use ridgeline_operators::machine_costs::MachineCosts;
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::range::Range;
use ridgeline_profile::{BUSY_NOTE, Profile};
use ridgeline_recording::manifest::Manifest;

/// The name of the optimization for which the recomputation curve is computed.
const RECOMPUTE: &str = "recompute";
/// The minimum predicted speedup worth reporting. Two runs of one program differ by less.
pub const MIN_REPORTED_SPEEDUP: f64 = 1.02;

/// A recorded iteration with its profile and device.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    /// The iteration as a graph.
    pub recorded: Recorded,
    /// Costs by line, module and kernel.
    pub profile: Arc<Profile>,
    /// The manifest, if Ridgeline made the recording.
    pub manifest: Option<Manifest>,
    /// The device that ran it, or why nothing can be predicted for an unknown GPU: a sentence
    /// without a full stop.
    pub device: Result<DeviceSpec, String>,
}

/// The parameters of a study.
#[derive(Clone, Copy, Debug)]
pub struct StudyOptions<'a> {
    /// Names of the optimizations. Empty means all.
    pub optimizations: &'a [&'a str],
    /// The maximum peak memory of combinations, in bytes.
    pub memory_limit: Option<f64>,
    /// The machines for data-parallel training.
    pub cluster: Cluster,
    /// Measured times of operator variants on this machine.
    pub probes: &'a Probes,
}

/// The results of a study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Study {
    /// Name of the device.
    pub device: String,
    /// Samples per iteration.
    pub batch_size: Option<u64>,
    /// Iteration time in nanoseconds.
    pub iteration_ns: f64,
    /// Peak memory in bytes, if recorded.
    pub peak_bytes: Option<f64>,
    /// Relative error of the simulated iteration: 0.01 is 1% too long.
    pub replay_error: f64,
    /// Number of tasks in the graph.
    pub tasks: usize,
    /// Paths of the files with lines.
    pub files: Vec<String>,
    /// Predicted effects of the optimizations.
    pub what_ifs: WhatIfs,
    /// Cost and savings of activation recomputation, from the fastest point to the one with the
    /// least memory. Empty if not requested or if there is nothing to report.
    pub recompute: Vec<Point>,
    /// What was measured on this machine, for estimates of unsaved text.
    pub machine_costs: MachineCosts,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Returns the optimization with a name.
pub fn optimization(name: &str) -> Option<&'static dyn Optimization> {
    optimizations::ALL.iter().copied().find(|one| one.name() == name)
}

/// Returns the names of all optimizations.
pub fn names() -> Vec<&'static str> {
    optimizations::ALL.iter().map(|one| one.name()).collect()
}

/// Returns the device that ran an iteration: a GPU from the table, or a CPU with `cores` cores
/// whose rates are derived from the profile's operators.
///
/// # Errors
/// Fails for a GPU that is not in the table, with a sentence without a full stop.
pub fn device_of(
    profile: &Profile,
    ran_on_gpu: bool,
    table: &DeviceTable,
    cores: u32,
) -> Result<DeviceSpec, String> {
    if !ran_on_gpu {
        return Ok(cpu(Some(profile), cores));
    }
    let name = &profile.device.name;
    if name.is_empty() || name == "unknown" {
        return Err(unnamed(profile));
    }
    let known = table.find(name).cloned();
    known.ok_or_else(|| {
        format!("{name} is not a known GPU; describe it in a file (docs/configuration.md)")
    })
}

/// Why the GPU of a recording is unknown, with what the recording has.
fn unnamed(profile: &Profile) -> String {
    let device = &profile.device;
    let mut known: Vec<String> = Vec::new();
    known.extend(device.multiprocessors.map(|count| format!("{count} multiprocessors")));
    known.extend(
        device.capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
    );
    match known.is_empty() {
        true => "the recording does not name the GPU".to_owned(),
        false => format!("the recording does not name the GPU ({})", known.join(", ")),
    }
}

impl RecordedRun {
    /// Predicts the effects of the optimizations. Stops early when `stop` returns true.
    ///
    /// # Errors
    /// Fails if the GPU is unknown, with a sentence without a full stop.
    pub fn study(
        &self,
        question: &StudyOptions<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Study, String> {
        let facts = self.facts(question)?;
        let wants_recompute =
            question.optimizations.is_empty() || question.optimizations.contains(&RECOMPUTE);
        let Recorded { graph, schedule, replay_error, .. } = &self.recorded;
        let what_ifs =
            rank_until(&self.recorded, &facts, question.optimizations, question.memory_limit, stop);
        Ok(Study {
            device: self.profile.device.display_name().into_owned(),
            batch_size: self.profile.iteration.batch_size.filter(|size| *size > 0),
            iteration_ns: schedule.iteration_ns,
            peak_bytes: memory::peak(graph, schedule),
            replay_error: *replay_error,
            tasks: graph.tasks.len(),
            files: self.profile.files.iter().map(|file| file.path.clone()).collect(),
            what_ifs,
            recompute: match wants_recompute && !stop() {
                true => curve(&self.recorded, &facts),
                false => Vec::new(),
            },
            machine_costs: self.machine_costs(&facts),
            notes: self.notes(),
        })
    }

    fn machine_costs(&self, facts: &Facts<'_>) -> MachineCosts {
        let graph = &self.recorded.graph;
        let mut costs = facts.probes.machine_costs(graph);
        if !facts.is_gpu() {
            let calls = calls(graph);
            let modelled = overhead::machine_factor(graph, facts, &calls);
            costs.call_ns = overhead::shortest_call_ns(graph, &calls).unwrap_or(0.0) / modelled;
        }
        costs
    }

    /// Reports whether the network between GPUs is fast enough to train on them.
    ///
    /// # Errors
    /// The reason why this is unknown: a sentence without a full stop.
    pub fn network(&self, question: &StudyOptions<'_>) -> Result<NetworkReport, String> {
        network::report(&self.recorded, &self.facts(question)?)
    }

    fn facts<'a>(&'a self, question: &StudyOptions<'a>) -> Result<Facts<'a>, String> {
        Ok(Facts {
            profile: &self.profile,
            manifest: self.manifest.as_ref(),
            device: self.device.as_ref().map_err(Clone::clone)?,
            options: Options::default(),
            probes: question.probes,
            cluster: question.cluster,
        })
    }

    /// Notes on missing or unusual data in the recording.
    fn notes(&self) -> Vec<String> {
        let graph = &self.recorded.graph;
        let about_run = self.profile.notes.iter().filter(|note| note.starts_with(BUSY_NOTE));
        let mut notes: Vec<String> = about_run.cloned().collect();
        notes.extend(self.recorded.notes.iter().cloned());
        let error = self.recorded.replay_error;
        if error.abs() > TRUSTED_REPLAY {
            notes.push(format!(
                "The simulated iteration is {:.0}% {}: treat these predictions as a guess",
                error.abs() * 100.0,
                if error > 0.0 { "too long" } else { "too short" },
            ));
        }
        let ceilings = self.device.as_ref().ok().and_then(|device| device.ceilings);
        if let Some(day) = ceilings.and_then(|ceilings| ceilings.measured_on) {
            notes.push(format!(
                "Predictions use the rates measured on this GPU on {day}, not the datasheet values"
            ));
        }
        if !graph.operators.iter().any(|operator| operator.input_tensors().next().is_some()) {
            notes.push(
                "The recording has no operator shapes (record them with `record_shapes=True`): \
                predictions that need them are left out"
                    .to_owned(),
            );
        }
        if !graph.memory.is_known {
            notes.push(
                "The recording has no memory data (record it with `profile_memory=True`): peak \
                memory is unknown"
                    .to_owned(),
            );
        }
        let devices = graph.resources().iter().filter_map(|resource| match resource {
            Resource::Stream(device, _) => Some(*device),
            _ => None,
        });
        let devices: std::collections::BTreeSet<i64> = devices.collect();
        if devices.len() > 1 {
            notes.push(format!(
                "The recording covers {} GPUs used by one program: all are simulated, and \
                multi-GPU predictions treat them as one",
                devices.len()
            ));
        }
        notes
    }
}

impl Study {
    /// Corrects the predictions with measurements of the same optimizations in this project on this
    /// device, newest first.
    pub fn correct(&mut self, pairs: &[Pair]) {
        let WhatIfs { predictions, combinations, .. } = &mut self.what_ifs;
        for prediction in predictions.iter_mut().chain(&mut *combinations) {
            let known = prediction.names.iter().filter_map(|name| correction(pairs, name));
            if let Some(correction) = known.reduce(Correction::and) {
                prediction.correct(correction);
            }
        }
        sort(predictions);
        sort(combinations);
    }

    /// Replaces the peak memory of predictions by better estimates, in bytes by the name of an optimization. Combinations
    /// with such an optimization change by the same factor.
    pub fn correct_memory(&mut self, peaks: &BTreeMap<String, f64>) {
        let factor = |name: &str| {
            let predicted = self.prediction(name)?.peak_bytes.filter(|peak| peak.value > 0.0)?;
            Some(peaks.get(name)? / predicted.value)
        };
        let factors: BTreeMap<&String, f64> =
            peaks.keys().filter_map(|name| Some((name, factor(name)?))).collect();
        let WhatIfs { predictions, combinations, .. } = &mut self.what_ifs;
        for prediction in predictions.iter_mut().chain(combinations) {
            let known = prediction.names.iter().filter_map(|name| factors.get(name));
            let factor: f64 = known.product();
            prediction.peak_bytes = prediction.peak_bytes.map(|peak| peak.times(factor));
        }
    }

    /// Returns the predicted samples per second, or `None` without a batch size.
    pub fn samples_per_second(&self, prediction: &Prediction) -> Option<Range> {
        let now = self.batch_size? as f64 / (self.iteration_ns / 1e9);
        now.is_finite().then(|| prediction.speedup().times(now))
    }

    /// Returns the prediction for one optimization.
    pub fn prediction(&self, name: &str) -> Option<&Prediction> {
        self.what_ifs.predictions.iter().find(|one| one.names == [name])
    }

    /// Returns the best `most` optimizations that can be applied on this hardware. Of mutually
    /// exclusive ones, only the best is included.
    pub fn best(&self, most: usize) -> Vec<&Prediction> {
        let mut best: Vec<(&Prediction, &dyn Optimization)> = Vec::new();
        for prediction in &self.what_ifs.predictions {
            let known = prediction.names.first().and_then(|name| optimization(name));
            let Some(one) = known.filter(|one| one.can_combine() && !one.is_research()) else {
                continue;
            };
            let is_worthwhile = prediction.speedup().value >= MIN_REPORTED_SPEEDUP;
            let is_compatible = best
                .iter()
                .all(|(_, other)| other.is_compatible_with(one) && one.is_compatible_with(*other));
            if is_worthwhile && is_compatible && best.len() < most {
                best.push((prediction, one));
            }
        }
        best.into_iter().map(|(prediction, _)| prediction).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::Sides;

    #[test]
    fn better_estimates_of_memory_apply_to_combinations() {
        let prediction = |names: &[&str], peak: f64| Prediction {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            peak_bytes: Some(Range::exact(peak)),
            ..Prediction::default()
        };
        let mut study = Study::default();
        study.what_ifs.predictions =
            vec![prediction(&["amp-bf16"], 40.0), prediction(&["compile"], 50.0)];
        study.what_ifs.combinations = vec![prediction(&["amp-bf16", "compile"], 30.0)];
        study.correct_memory(&BTreeMap::from([
            ("amp-bf16".to_owned(), 60.0),
            ("amp-fp16".to_owned(), 60.0),
        ]));
        let WhatIfs { predictions, combinations, .. } = &study.what_ifs;
        let peaks = predictions.iter().chain(combinations).map(|one| one.peak_bytes.unwrap().value);
        assert_eq!(peaks.collect::<Vec<_>>(), [60.0, 50.0, 45.0]);
    }

    #[test]
    fn corrections_can_change_the_order() {
        let prediction = |name: &str, time_ns: f64| Prediction {
            names: vec![name.to_owned()],
            before_ns: 100.0,
            time_ns: Range::exact(time_ns),
            samples_factor: 1.0,
            ..Prediction::default()
        };
        let mut study = Study::default();
        study.what_ifs.predictions = vec![prediction("compile", 60.0), prediction("tf32", 70.0)];
        let sides = |after_ns: f64| Sides { before_ns: 100.0, after_ns, ..Sides::default() };
        let pair = Pair {
            name: "compile".to_owned(),
            predicted: sides(60.0),
            measured: sides(120.0),
            ..Pair::default()
        };
        study.correct(&[pair]);
        let order = study.what_ifs.predictions.iter().map(|one| one.names[0].as_str());
        assert_eq!(order.collect::<Vec<_>>(), ["tf32", "compile"]);
    }
}
