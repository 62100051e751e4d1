//! The measurements: a step before and after a change, with the parts of its operators.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::benchmark_facts::benchmark;
use ridgeline_evaluate::device_name::named_with_power;
use ridgeline_evaluate::lambda_results::{LambdaRow, LambdaTables};
use ridgeline_evaluate::list_request::ListRequest;
use ridgeline_evaluate::timm_file_name::TimmFileName;
use ridgeline_evaluate::timm_results::{TimmResults, read};
use ridgeline_operators::op_cost::Options;
use ridgeline_operators::op_list::OpList;
use ridgeline_optimize::optimizations::shared::factors::Factors;
use ridgeline_optimize::optimizations::shared::mixed_precision;
use ridgeline_optimize::optimizations::shared::parts::{Machine, Part};

/// A step measured before and after a change.
pub(crate) struct Case {
    pub name: String,
    /// The group that cross-validation holds out: a family of models, or a GPU.
    pub group: String,
    pub before_ns: f64,
    pub after_ns: f64,
    /// At most one part of each kind.
    pub parts: Vec<Part>,
}

impl Case {
    /// Returns the predicted time after the change, in nanoseconds.
    pub(crate) fn predicted(&self, factors: &Factors) -> f64 {
        factors.step_ns(self.before_ns, &self.parts).unwrap_or(self.before_ns)
    }

    /// Returns the time of the parts of a kind before the change, in nanoseconds.
    pub(crate) fn before_of(&self, kind: Option<&str>) -> f64 {
        let parts = self.parts.iter().filter(|part| kind.is_none_or(|kind| part.kind == kind));
        parts.map(|part| part.before_ns).sum()
    }
}

/// Steps of `timm` models on one GPU, in pairs of files without and with the change.
pub(crate) struct Timm {
    pub device: &'static str,
    pub mode: &'static str,
    pub files: &'static [(&'static str, &'static str)],
    pub parts: fn(&OpList, &Machine<'_>) -> Vec<Part>,
}

impl Timm {
    pub(crate) fn cases(&self, truth: &Path, lists: &Path) -> Result<Vec<Case>> {
        let device = DeviceTable::shipped().find(self.device).context("no such device")?;
        let machine = Machine { device, options: Options::default() };
        let mut cases = Vec::new();
        for (before, after) in self.files {
            let to: BTreeMap<(String, u32), (u32, f64)> = results(truth, after)?
                .rows
                .into_iter()
                .map(|row| ((row.model, row.size), (row.batch, row.step_milliseconds)))
                .collect();
            for row in results(truth, before)?.rows {
                let Some((batch, after_ms)) = to.get(&(row.model.clone(), row.size)) else {
                    continue;
                };
                let name = format!("{}/{}-{}-b{}.json", self.mode, row.model, row.size, row.batch);
                let Some(list) = list(&lists.join(name)) else { continue };
                let images = f64::from(*batch) / f64::from(row.batch);
                cases.push(Case {
                    name: format!("{} {} ({before})", row.model, row.size),
                    group: family(&row.model),
                    before_ns: row.step_milliseconds * 1e6,
                    after_ns: after_ms * 1e6 / images,
                    parts: merged((self.parts)(&list, &machine)),
                });
            }
        }
        Ok(cases)
    }
}

/// Reads models of `lambda/` on one GPU, in FP32 and in FP16.
pub(crate) fn lambda(truth: &Path, lists: &Path) -> Result<Vec<Case>> {
    let mut tables = LambdaTables::default();
    for kind in ["throughput", "batch-size"] {
        for precision in ["fp32", "fp16"] {
            let name = format!("train-{kind}-{precision}.csv");
            let bytes = std::fs::read(truth.join("lambda").join(&name))?;
            tables.read(&name, &bytes).map_err(anyhow::Error::msg)?;
        }
    }
    let rows: Vec<LambdaRow> = tables.rows().into_iter().filter(|row| row.gpus == 1).collect();
    let mut cases = Vec::new();
    for after in rows.iter().filter(|row| row.half) {
        let is_same = |row: &&LambdaRow| {
            !row.half && row.machine == after.machine && row.model == after.model
        };
        let Some(before) = rows.iter().find(is_same) else { continue };
        let Some(gpu) = named_with_power(&after.gpu, after.watts, DeviceTable::shipped()) else {
            continue;
        };
        let list_of = |row: &LambdaRow| {
            let (model, batch, half) = (row.model.clone(), row.batch, row.half);
            list(&lists.join(ListRequest::Benchmark { model, batch, half }.file_name()))
        };
        let (Some(from), Some(to)) = (list_of(before), list_of(after)) else { continue };
        let options = Options { tf32_matmuls: true, tf32_convolutions: true };
        let machine = Machine { device: gpu.device, options };
        let Some(program) = benchmark(&after.model) else { continue };
        let step_ns = |row: &LambdaRow| {
            1e6 * program.step_milliseconds(f64::from(row.batch), row.gpus, row.per_second)
        };
        let samples = f64::from(after.batch) / f64::from(before.batch);
        cases.push(Case {
            name: format!("{} {}", after.machine, after.model),
            group: gpu.device.name.clone(),
            before_ns: step_ns(before),
            after_ns: step_ns(after) / samples,
            parts: merged(mixed_precision::parts(&from, &to, samples, &machine)),
        });
    }
    Ok(cases)
}

/// Returns the groups of the cases, sorted.
pub(crate) fn groups(cases: &[Case]) -> Vec<&str> {
    let groups: BTreeSet<&str> = cases.iter().map(|case| case.group.as_str()).collect();
    groups.into_iter().collect()
}

fn list(file: &Path) -> Option<OpList> {
    OpList::parse(&std::fs::read(file).ok()?).ok()
}

fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut by_kind: BTreeMap<&'static str, Part> = BTreeMap::new();
    for part in parts {
        let sum = by_kind.entry(part.kind).or_insert(Part::same(part.kind, 0.0));
        sum.before_ns += part.before_ns;
        sum.after_ns += part.after_ns;
    }
    by_kind.into_values().collect()
}

fn results(truth: &Path, name: &str) -> Result<TimmResults> {
    let parsed = TimmFileName::parse(name).context("the name of a result file")?;
    let bytes = std::fs::read(truth.join("timm").join(name))?;
    Ok(read(name, parsed, &bytes).map_err(anyhow::Error::msg)?.0)
}

/// Returns the letters before the first digit or underscore: `resnet` of `resnet50d`.
fn family(model: &str) -> String {
    model.chars().take_while(char::is_ascii_alphabetic).collect()
}
