//! Selects single operators to measure for what-ifs, and reads the results: the request and the
//! response of `docs/whatif.md`, "Probes".

use serde_json::{Value, json};

use super::cells::cells;
use super::facts::{Probes, Variant};
use super::stand_ins::stand_ins;
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::{Manifest, Optimizer, Settings};

/// The maximum number of operators requested. In the demo projects, the 40 costliest take 90% of
/// the time.
const MAX_OPERATORS: usize = 40;
/// The maximum number of replacements requested. Most layers are alike: a model has one or two
/// kinds.
const MAX_STAND_INS: usize = 8;
/// The maximum number of recurrent cells requested.
const MAX_CELLS: usize = 8;
/// The minimum share of the iteration for an operator to affect a prediction.
const MIN_SHARE: f64 = 0.001;
/// The maximum number of parameter tensors of an optimizer that is requested.
const MAX_PARAMETERS: usize = 20_000;
/// The implementations of an optimizer.
const OPTIMIZER_VARIANTS: [&str; 3] = ["for-loop", "foreach", "fused"];
/// The maximum size of a response.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The maximum plausible time of a call: an hour, in nanoseconds.
const MAX_NS: f64 = 3.6e12;

/// The measurements to request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeList {
    /// Indices into [`Graph::operators`], costliest first, with the variants of each.
    pub operators: Vec<(u32, Vec<Variant>)>,
    /// Operators that the program does not have. They follow the recorded ones in the request.
    pub stand_ins: Vec<Operator>,
    /// Indices into [`Manifest::optimizers`].
    pub optimizers: Vec<u32>,
    /// Indices into [`Manifest::modules`] of recurrent cells that are stepped.
    pub cells: Vec<u32>,
    /// The request to the agent, as in `docs/whatif.md`. [`Value::Null`] if there is nothing to
    /// measure.
    pub request: Value,
}

/// The response of the agent.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults {
    /// Measured times.
    pub probes: Probes,
    /// Sentences about what could not run, and why.
    pub notes: Vec<String>,
}

/// The kinds of measurements to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeKinds {
    /// Other element types.
    pub types: bool,
    /// Other memory layouts.
    pub layouts: bool,
    /// Other settings of GPU libraries: TF32 for matrix multiplications, `cudnn.benchmark` for
    /// convolutions.
    pub switches: bool,
    /// Replacement operators.
    pub stand_ins: bool,
    /// Other optimizer implementations.
    pub optimizers: bool,
    /// Layers instead of stepped cells.
    pub cells: bool,
}

impl ProbeKinds {
    /// All measurements, for what-ifs.
    pub const ALL: ProbeKinds = ProbeKinds {
        types: true,
        layouts: true,
        switches: true,
        stand_ins: true,
        optimizers: true,
        cells: true,
    };
    /// No measurements.
    pub const NONE: ProbeKinds = ProbeKinds {
        types: false,
        layouts: false,
        switches: false,
        stand_ins: false,
        optimizers: false,
        cells: false,
    };
}

/// Selects the measurements for a graph within a time budget. `peak_bytes` is the program's peak
/// memory: probes cycle through that much memory to have realistic cache misses.
pub fn probe_list(
    graph: &Graph,
    manifest: Option<&Manifest>,
    peak_bytes: Option<u64>,
    seconds: f64,
    kinds: ProbeKinds,
) -> ProbeList {
    let no_settings = Settings::default();
    let settings = manifest.map_or(&no_settings, |manifest| &manifest.settings);
    let is_gpu = graph.tasks.iter().any(|task| !task.kind.is_host());
    let costliest = costliest(graph);
    let mut operators: Vec<(u32, Vec<Variant>)> = costliest
        .iter()
        .filter_map(|index| {
            let operator = graph.operators.get(*index as usize)?;
            Some((*index, variants(operator, is_gpu, settings, kinds)))
        })
        .filter(|(_, variants)| variants.len() > 1)
        .take(MAX_OPERATORS)
        .collect();
    let tf32 = settings.matmul_precision.as_deref().is_some_and(|one| one != "highest");
    let mut stand_ins =
        if kinds.stand_ins { stand_ins(graph, &costliest, tf32) } else { Vec::new() };
    stand_ins.truncate(MAX_STAND_INS);
    for index in stand_ins.iter().flat_map(|one| one.of.iter().copied()) {
        if !operators.iter().any(|(known, _)| *known == index) {
            operators.push((index, vec![Variant::Same]));
        }
    }
    let stand_ins: Vec<Operator> = stand_ins.into_iter().map(|one| one.operator).collect();
    let all = manifest.map(|manifest| manifest.optimizers.as_slice()).unwrap_or_default();
    let all = if kinds.optimizers { all } else { &[] };
    let optimizers: Vec<(u32, Value)> = (0_u32..)
        .zip(all)
        .filter_map(|(index, optimizer)| Some((index, optimizer_json(manifest?, optimizer)?)))
        .collect();
    let known = manifest.filter(|_| kinds.cells);
    let mut cells = known.map_or_else(Vec::new, |manifest| cells(graph, manifest));
    cells.truncate(MAX_CELLS);
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
        "optimizers": optimizers.iter().map(|(_, requested)| requested).collect::<Vec<_>>(),
        "cells": cells.iter().map(|(_, requested)| requested).collect::<Vec<_>>(),
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

    /// Reads `probes.json`. Values that are missing, invalid, or of another operator than requested
    /// are ignored.
    pub fn read(&self, answer: &[u8]) -> ProbeResults {
        let mut found = ProbeResults::default();
        if answer.len() > MAX_ANSWER_BYTES {
            return found;
        }
        let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return found };
        let list = |key: &str| answer.get(key).and_then(Value::as_array).cloned();
        let requested_names = |key: &str, name: &str| -> Vec<Option<String>> {
            let requested = self.request.get(key).and_then(Value::as_array);
            let names = requested.into_iter().flatten();
            names.map(|one| Some(one.get(name)?.as_str()?.to_owned())).collect()
        };
        let is_same = |answer: &Value, key: &str, requested: &Option<String>| {
            requested.is_some() && answer.get(key).and_then(Value::as_str) == requested.as_deref()
        };
        let names = requested_names("operators", "name");
        let answers = list("operators").unwrap_or_default();
        let stand_in_answers = answers.iter().zip(&names).skip(self.operators.len());
        for ((answer, name), operator) in stand_in_answers.zip(&self.stand_ins) {
            let time_of = answer.get(Variant::Same.name()).and_then(time);
            let time_of = time_of.filter(|_| is_same(answer, "name", name));
            found.probes.stand_ins.extend(time_of.map(|time_ns| (operator.clone(), time_ns)));
        }
        for ((answer, (index, variants)), name) in answers.iter().zip(&self.operators).zip(&names) {
            for variant in variants.iter().filter(|_| is_same(answer, "name", name)) {
                if let Some(time_ns) = answer.get(variant.name()).and_then(time) {
                    found.probes.operators.insert((*index, *variant), time_ns);
                }
            }
        }
        let types = requested_names("optimizers", "type");
        for ((answer, index), name) in
            list("optimizers").iter().flatten().zip(&self.optimizers).zip(&types)
        {
            for variant in OPTIMIZER_VARIANTS.iter().filter(|_| is_same(answer, "type", name)) {
                if let Some(time_ns) = answer.get(*variant).and_then(time) {
                    found.probes.optimizers.insert((*index, *variant), time_ns);
                }
            }
        }
        let types = requested_names("cells", "type");
        for ((answer, index), name) in list("cells").iter().flatten().zip(&self.cells).zip(&types) {
            let time_of = |way: &str| answer.get(way).and_then(time);
            let ratio = time_of("layer").zip(time_of("cell")).map(|(layer, cell)| layer / cell);
            let ratio = ratio.filter(|_| is_same(answer, "type", name));
            found.probes.cells.extend(ratio.map(|ratio| (*index, ratio)));
        }
        let notes = list("notes").unwrap_or_default();
        found.notes = notes.iter().filter_map(|note| Some(note.as_str()?.to_owned())).collect();
        found
    }
}

fn time(value: &Value) -> Option<f64> {
    value.as_f64().filter(|time_ns| *time_ns > 0.0 && *time_ns < MAX_NS)
}

/// Returns the operators of the forward and backward pass, costliest first, by their time on the
/// device that computes.
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
        (0_u32..).zip(times).filter(|(_, time)| *time > MIN_SHARE * total).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(index, _)| index).collect()
}

/// Returns the variants worth measuring. The recorded one is first.
fn variants(
    operator: &Operator,
    is_gpu: bool,
    settings: &Settings,
    kinds: ProbeKinds,
) -> Vec<Variant> {
    let mut variants = vec![Variant::Same];
    let is_float = |tensor: &Tensor| tensor.element == Some(ElementType::Float32);
    if kinds.types && operator.input_tensors().any(is_float) {
        // A CPU that emulates bfloat16 may take a hundred times as long.
        if settings.bf16_native != Some(false) {
            variants.push(Variant::BFloat16);
        }
        if is_gpu {
            variants.push(Variant::Float16);
        }
    }
    let is_image = |tensor: &Tensor| tensor.shape.len() == 4 && !tensor.is_channels_last();
    if kinds.layouts && operator.input_tensors().any(is_image) {
        variants.push(Variant::ChannelsLast);
    }
    let family = work(operator).map(|work| work.family);
    if kinds.switches && is_gpu {
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
        // Integers stay integers, which a schema may require.
        Arg::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            json!(*number as i64)
        }
        Arg::Number(number) => json!(number),
        Arg::Text(text) => json!(text),
        Arg::List(list) => list.iter().map(|arg| arg_json(arg, operator)).collect(),
        Arg::Tensor(tensor) => {
            // A trace does not have the types of tensors in a list.
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

/// Returns the request for an optimizer with its parameter sizes. Their shapes do not matter.
/// Returns `None` if its parameters are unknown.
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
            // It has only some of them, and which ones is not recorded.
            false => shapes.push([*owned]),
        }
        if shapes.len() > MAX_PARAMETERS {
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
