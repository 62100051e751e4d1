//! Which single operators are worth running by themselves for what-ifs, and what came of it: the
//! request and the answer of `docs/whatif.md`, "Probes".

use serde_json::{Value, json};

use super::cells::cells;
use super::facts::{Probes, Variant};
use super::stand_ins::stand_ins;
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::{Manifest, Optimizer, Settings};

/// So many operators are asked for. In the demo projects the 40 costliest have 90% of the time.
const MOST_OPERATORS: usize = 40;
/// Most layers are alike: a model has one or two of them.
const MOST_STAND_INS: usize = 8;
/// So are the cells.
const MOST_CELLS: usize = 8;
/// An operator with a smaller share of the iteration changes no prediction.
const LEAST_SHARE: f64 = 0.001;
/// An optimizer with more parameters is asked for with the largest of them alone, and not at all.
const MOST_PARAMETERS: usize = 20_000;
/// The ways in which an optimizer can be run.
const OPTIMIZER_VARIANTS: [&str; 3] = ["for-loop", "foreach", "fused"];
/// A longer answer is none of ours.
const MOST_ANSWER_BYTES: usize = 4 << 20;
/// No call takes as long: an hour.
const LONGEST_NS: f64 = 3.6e12;

/// What to measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeList {
    /// Places in [`Graph::operators`], the costliest first, with the ways to run each.
    pub operators: Vec<(u32, Vec<Variant>)>,
    /// Operators that the program does not have; asked for behind those that it has.
    pub stand_ins: Vec<Operator>,
    /// Places in [`Manifest::optimizers`].
    pub optimizers: Vec<u32>,
    /// Places in [`Manifest::modules`] of recurrent cells that are stepped.
    pub cells: Vec<u32>,
    /// What the agent is asked, as in `docs/whatif.md`; [`Value::Null`] where there is nothing to ask.
    pub request: Value,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The times.
    pub probes: Probes,
    /// What could not be run, and why: sentences.
    pub notes: Vec<String>,
}

/// What the answers are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Other types of elements.
    pub types: bool,
    /// Another order of dimensions.
    pub layouts: bool,
    /// Other switches of a GPU's libraries: products in TF32, convolutions by trial.
    pub switches: bool,
    /// Operators in the place of the program's.
    pub stand_ins: bool,
    /// Other ways to run optimizers.
    pub optimizers: bool,
    /// Layers in the place of cells that are stepped.
    pub cells: bool,
}

impl Wanted {
    /// For what-ifs.
    pub const ALL: Wanted = Wanted {
        types: true,
        layouts: true,
        switches: true,
        stand_ins: true,
        optimizers: true,
        cells: true,
    };
    /// For nothing.
    pub const NONE: Wanted = Wanted {
        types: false,
        layouts: false,
        switches: false,
        stand_ins: false,
        optimizers: false,
        cells: false,
    };
}

/// What to measure for a graph within so many seconds. `peak_bytes` is what the program holds at its
/// peak: so much memory goes through the caches, and no more.
pub fn probe_list(
    graph: &Graph,
    manifest: Option<&Manifest>,
    peak_bytes: Option<u64>,
    seconds: f64,
    wanted: Wanted,
) -> ProbeList {
    let no_settings = Settings::default();
    let settings = manifest.map_or(&no_settings, |manifest| &manifest.settings);
    let is_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
    let costliest = costliest(graph);
    let mut operators: Vec<(u32, Vec<Variant>)> = costliest
        .iter()
        .filter_map(|index| {
            let operator = graph.operators.get(*index as usize)?;
            Some((*index, variants(operator, is_gpu, settings, wanted)))
        })
        .filter(|(_, variants)| variants.len() > 1)
        .take(MOST_OPERATORS)
        .collect();
    let tf32 = settings.matmul_precision.as_deref().is_some_and(|one| one != "highest");
    let mut stand_ins =
        if wanted.stand_ins { stand_ins(graph, &costliest, tf32) } else { Vec::new() };
    stand_ins.truncate(MOST_STAND_INS);
    for index in stand_ins.iter().flat_map(|one| one.of.iter().copied()) {
        if !operators.iter().any(|(known, _)| *known == index) {
            operators.push((index, vec![Variant::Same]));
        }
    }
    let stand_ins: Vec<Operator> = stand_ins.into_iter().map(|one| one.operator).collect();
    let all = manifest.map(|manifest| manifest.optimizers.as_slice()).unwrap_or_default();
    let all = if wanted.optimizers { all } else { &[] };
    let optimizers: Vec<(u32, Value)> = (0_u32..)
        .zip(all)
        .filter_map(|(index, optimizer)| Some((index, optimizer_json(manifest?, optimizer)?)))
        .collect();
    let known = manifest.filter(|_| wanted.cells);
    let mut cells = known.map_or_else(Vec::new, |manifest| cells(graph, manifest));
    cells.truncate(MOST_CELLS);
    if operators.is_empty() && optimizers.is_empty() && cells.is_empty() {
        return ProbeList::default();
    }
    let recorded = operators.iter().filter_map(|(index, variants)| {
        Some(operator_json(graph.operators.get(*index as usize)?, variants))
    });
    let others = stand_ins.iter().map(|operator| operator_json(operator, &[Variant::Same]));
    let threads = manifest.and_then(|manifest| manifest.device.threads);
    let request = json!({
        "version": 1,
        "seconds": seconds,
        "working_set_bytes": peak_bytes,
        "settings": {
            "threads": threads,
            "matmul_precision": settings.matmul_precision,
            "cudnn_benchmark": settings.cudnn_benchmark,
            "cudnn_tf32": settings.cudnn_tf32,
            "deterministic": settings.deterministic,
        },
        "operators": recorded.chain(others).collect::<Vec<_>>(),
        "optimizers": optimizers.iter().map(|(_, asked)| asked).collect::<Vec<_>>(),
        "cells": cells.iter().map(|(_, asked)| asked).collect::<Vec<_>>(),
    });
    let optimizers = optimizers.iter().map(|(index, _)| *index).collect();
    let cells = cells.iter().map(|(index, _)| *index).collect();
    ProbeList { operators, stand_ins, optimizers, cells, request }
}

impl ProbeList {
    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty() && self.optimizers.is_empty() && self.cells.is_empty()
    }

    /// Reads `probes.json`. What is missing, not a time, or of another operator than was asked for is
    /// left out.
    pub fn read(&self, answer: &[u8]) -> Answer {
        let mut found = Answer::default();
        if answer.len() > MOST_ANSWER_BYTES {
            return found;
        }
        let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return found };
        let list = |key: &str| answer.get(key).and_then(Value::as_array).cloned();
        let asked_names = |key: &str, name: &str| -> Vec<Option<String>> {
            let asked = self.request.get(key).and_then(Value::as_array);
            let names = asked.into_iter().flatten();
            names.map(|one| Some(one.get(name)?.as_str()?.to_owned())).collect()
        };
        let is_same = |answer: &Value, key: &str, asked: &Option<String>| {
            asked.is_some() && answer.get(key).and_then(Value::as_str) == asked.as_deref()
        };
        let names = asked_names("operators", "name");
        let answers = list("operators").unwrap_or_default();
        let of_others = answers.iter().zip(&names).skip(self.operators.len());
        for ((answer, name), operator) in of_others.zip(&self.stand_ins) {
            let told = answer.get(Variant::Same.name()).and_then(time);
            let told = told.filter(|_| is_same(answer, "name", name));
            found.probes.stand_ins.extend(told.map(|time_ns| (operator.clone(), time_ns)));
        }
        for ((answer, (index, variants)), name) in answers.iter().zip(&self.operators).zip(&names) {
            for variant in variants.iter().filter(|_| is_same(answer, "name", name)) {
                if let Some(time_ns) = answer.get(variant.name()).and_then(time) {
                    found.probes.operators.insert((*index, *variant), time_ns);
                }
            }
        }
        let types = asked_names("optimizers", "type");
        for ((answer, index), name) in
            list("optimizers").iter().flatten().zip(&self.optimizers).zip(&types)
        {
            for variant in OPTIMIZER_VARIANTS.iter().filter(|_| is_same(answer, "type", name)) {
                if let Some(time_ns) = answer.get(*variant).and_then(time) {
                    found.probes.optimizers.insert((*index, *variant), time_ns);
                }
            }
        }
        let types = asked_names("cells", "type");
        for ((answer, index), name) in list("cells").iter().flatten().zip(&self.cells).zip(&types) {
            let told = |way: &str| answer.get(way).and_then(time);
            let ratio = told("layer").zip(told("cell")).map(|(layer, cell)| layer / cell);
            let ratio = ratio.filter(|_| is_same(answer, "type", name));
            found.probes.cells.extend(ratio.map(|ratio| (*index, ratio)));
        }
        let notes = list("notes").unwrap_or_default();
        found.notes = notes.iter().filter_map(|note| Some(note.as_str()?.to_owned())).collect();
        found
    }
}

fn time(value: &Value) -> Option<f64> {
    value.as_f64().filter(|time_ns| *time_ns > 0.0 && *time_ns < LONGEST_NS)
}

/// The operators of the forward and the backward pass by what they take on what computes, the
/// costliest first.
fn costliest(graph: &Graph) -> Vec<u32> {
    let is_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
    let mut times = vec![0.0; graph.operators.len()];
    let mut total = 0.0;
    for task in graph.tasks.iter() {
        let computes = task.kind.is_host() != is_gpu;
        if task.is_removed || !computes {
            continue;
        }
        total += task.duration_ns;
        let is_model = matches!(task.phase, Phase::Forward | Phase::Backward | Phase::Other);
        let slot = task.operator.and_then(|operator| times.get_mut(operator as usize));
        if let Some(slot) = slot.filter(|_| is_model) {
            *slot += task.duration_ns;
        }
    }
    let mut found: Vec<(u32, f64)> =
        (0_u32..).zip(times).filter(|(_, time)| *time > LEAST_SHARE * total).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(index, _)| index).collect()
}

/// The ways in which it can be run that are worth a measurement; the recorded way is the first.
fn variants(
    operator: &Operator,
    is_gpu: bool,
    settings: &Settings,
    wanted: Wanted,
) -> Vec<Variant> {
    let mut variants = vec![Variant::Same];
    let is_float = |tensor: &Tensor| tensor.element == Some(ElementType::Float32);
    if wanted.types && operator.input_tensors().any(is_float) {
        // A processor that has to imitate bfloat16 may need a hundred times as long.
        if settings.bf16_native != Some(false) {
            variants.push(Variant::BFloat16);
        }
        if is_gpu {
            variants.push(Variant::Float16);
        }
    }
    let is_image = |tensor: &Tensor| tensor.shape.len() == 4 && !tensor.is_channels_last();
    if wanted.layouts && operator.input_tensors().any(is_image) {
        variants.push(Variant::ChannelsLast);
    }
    let family = work(operator).map(|work| work.family);
    if wanted.switches && is_gpu {
        let is_single = operator.input_tensors().any(is_float);
        let is_highest = settings.matmul_precision.as_deref() == Some("highest");
        match family {
            Some(Family::Gemm) if is_single && is_highest => variants.push(Variant::Tf32),
            Some(Family::Convolution) => variants.push(Variant::CudnnBenchmark),
            _ => {}
        }
    }
    variants
}

fn operator_json(operator: &Operator, variants: &[Variant]) -> Value {
    let names: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
    json!({
        "name": operator.name,
        "inputs": operator.inputs.iter().map(|arg| arg_json(arg, operator)).collect::<Vec<_>>(),
        "variants": names,
    })
}

fn arg_json(arg: &Arg, operator: &Operator) -> Value {
    match arg {
        Arg::None => Value::Null,
        Arg::Bool(flag) => json!(flag),
        // As a whole number where it is one, which a schema may ask for.
        Arg::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            json!(*number as i64)
        }
        Arg::Number(number) => json!(number),
        Arg::Text(text) => json!(text),
        Arg::List(list) => list.iter().map(|arg| arg_json(arg, operator)).collect(),
        Arg::Tensor(tensor) => {
            // A trace does not tell the types of tensors in a list.
            let element = tensor.element.or_else(|| operator.element());
            let mut described = json!({
                "t": element.unwrap_or(ElementType::Float32).name(),
                "s": tensor.shape,
            });
            if let (Some(strides), Some(described)) = (&tensor.strides, described.as_object_mut()) {
                described.insert("d".to_owned(), json!(strides));
            }
            described
        }
    }
}

/// An optimizer over parameters of its sizes; their shapes do not matter to it. Nothing where its
/// parameters are not known.
fn optimizer_json(manifest: &Manifest, optimizer: &Optimizer) -> Option<Value> {
    let mut shapes: Vec<[u64; 1]> = Vec::new();
    let mut bytes = 4;
    for (module, owned) in &optimizer.modules {
        let parameters = &manifest.modules.get(*module as usize)?.parameters;
        let all: u64 = parameters.iter().fold(0, |sum, one| sum.saturating_add(one.elements));
        if let Some(one) = parameters.iter().find(|one| one.elements > 0) {
            bytes = one.bytes / one.elements;
        }
        match all == *owned {
            true => shapes.extend(parameters.iter().map(|one| [one.elements])),
            // It has some of them, and which is not recorded.
            false => shapes.push([*owned]),
        }
        if shapes.len() > MOST_PARAMETERS {
            return None;
        }
    }
    let dtype = match bytes {
        2 => "bfloat16",
        8 => "float64",
        _ => "float32",
    };
    (!shapes.is_empty()).then(|| {
        json!({
            "type": optimizer.type_name,
            "shapes": shapes,
            "dtype": dtype,
            "options": optimizer.options,
            "variants": OPTIMIZER_VARIANTS,
        })
    })
}

#[cfg(test)]
mod tests;
