//! The measurements: operators, device and time.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result};
use ridgeline_devices::device_spec::DeviceSpec;
use ridgeline_devices::device_table::DeviceTable;
use ridgeline_evaluate::benchmark_facts::benchmark;
use ridgeline_evaluate::device_name::named_with_power;
use ridgeline_evaluate::lambda_results::LambdaTables;
use ridgeline_evaluate::list_request::ListRequest;
use ridgeline_operators::op_cost::{Coefficients, Options, Plan};
use ridgeline_operators::op_list::OpList;
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};
use ridgeline_profile::Phase;

/// One measurement.
pub(crate) struct Case {
    /// The kind of measurement: `train-nchw`, `bmm`.
    pub set: String,
    /// The name in reports.
    pub name: String,
    /// The group that cross-validation holds out: a family of models, or a device.
    pub group: String,
    pub device: &'static DeviceSpec,
    pub options: &'static Options,
    /// The kernels of each operator, and the number of its calls.
    pub plans: Vec<(Plan, f64)>,
    /// Whether it is a whole step rather than a single operator.
    pub is_step: bool,
    pub measured_ns: f64,
    pub weight: f64,
}

/// Most measurements are without TF32, and in half precision only if stated.
const PLAIN: Options = Options { tf32_matmuls: false, tf32_convolutions: false };

/// The containers of `lambda/` enable TF32 if the GPU supports it.
const WITH_TF32: Options = Options { tf32_matmuls: true, tf32_convolutions: true };

impl Case {
    pub(crate) fn plan_ns(&self, plan: &Plan, coefficients: &Coefficients) -> f64 {
        plan.time_ns(self.device, self.options, coefficients)
    }

    /// Returns the logarithm of predicted over measured time.
    pub(crate) fn error(&self, coefficients: &Coefficients) -> f64 {
        let times = self.plans.iter().map(|(plan, n)| n * self.plan_ns(plan, coefficients));
        self.error_of(times.sum())
    }

    /// The same for a given predicted time.
    pub(crate) fn error_of(&self, predicted_ns: f64) -> f64 {
        (predicted_ns / self.measured_ns).ln()
    }

    pub(crate) fn is_stream(&self) -> bool {
        !self.is_step && !matches!(self.set.as_str(), "linear" | "bmm" | "conv" | "reported")
    }

    /// Returns false for Pascal, which has neither tensor cores nor support in current libraries:
    /// it has a lower weight, and its errors say little about other devices.
    pub(crate) fn is_current_generation(&self) -> bool {
        is_current_generation(self.device)
    }

    /// The device to hold out, for sets with several devices.
    pub(crate) fn left_out_device(&self) -> Option<&str> {
        self.family().is_none().then_some(self.group.as_str())
    }

    /// The part of the model families that it belongs to.
    pub(crate) fn part(&self, parts: u64) -> Option<u64> {
        let hash = self
            .family()?
            .bytes()
            .fold(7_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Some((hash >> 8) % parts)
    }

    fn family(&self) -> Option<&str> {
        self.group.strip_prefix("family ")
    }
}

/// Reads all measurements.
pub(crate) fn read(truth: &Path, lists: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    images(truth, lists, &mut cases)?;
    transformers(truth, lists, &mut cases)?;
    benchmarks(truth, lists, &mut cases)?;
    for set in OPERATORS {
        operators(truth, set, &mut cases)?;
    }
    reported(&mut cases)?;
    Ok(cases)
}

/// The best FP32 rates of a large GEMM that PyTorch users report, in TFLOP/s: medians of
/// github.com/zzc0721/torch-performance-test-data (database.md, and issues 15, 96, 124, 167, 200),
/// read on 25 November 2026.
const REPORTED_TFLOPS: [(&str, f64); 8] = [
    ("A100-SXM4-80GB", 19.1),
    ("H100-SXM5-80GB", 52.1),
    ("L40S", 46.9),
    ("RTX3090", 24.8),
    ("RTX4090", 54.7),
    ("RTX5090", 69.2),
    ("RTXA6000", 23.9),
    ("T4", 4.3),
];
/// Rows, columns and inner dimension of their second largest GEMM.
const REPORTED_SIDE: u64 = 8192;

fn reported(cases: &mut Vec<Case>) -> Result<()> {
    let side = REPORTED_SIDE;
    let tensor = || Tensor::new(ElementType::Float32, &[side, side]);
    let inputs = || vec![Arg::Tensor(tensor()), Arg::Tensor(tensor())];
    for (name, tflops) in REPORTED_TFLOPS {
        let device = device_of(name)?;
        let operator = Operator::new("aten::mm", inputs(), vec![tensor()]);
        cases.push(Case {
            set: "reported".to_owned(),
            name: format!("{side} x {side} x {side}"),
            group: device.name.clone(),
            device,
            options: &PLAIN,
            plans: vec![(Plan::new(&operator, device, &PLAIN), 1.0)],
            is_step: false,
            measured_ns: 2.0 * (side as f64).powi(3) / tflops / 1e3,
            weight: 1.0,
        });
    }
    Ok(())
}

const TIMM: [(&str, &str, &str, &str, f64); 5] = [
    ("train-nchw", "train-amp-nchw-pt112-cu113-rtx3090", "RTX3090", "train", 1.0),
    ("train-nhwc", "train-amp-nhwc-pt112-cu113-rtx3090", "RTX3090", "train", 0.7),
    ("infer-3090", "infer-amp-nchw-pt240-cu124-rtx3090", "RTX3090", "infer", 0.4),
    ("infer-3090-nhwc", "infer-amp-nhwc-pt240-cu124-rtx3090", "RTX3090", "infer", 0.3),
    ("infer-4090", "infer-amp-nchw-pt240-cu124-rtx4090", "RTX4090", "infer", 0.4),
];

/// Only every fourth model is used for inference: there are many, and they have a lower weight.
const INFERENCE_STRIDE: usize = 4;

/// Reads whole models of `timm`.
fn images(truth: &Path, lists: &Path, cases: &mut Vec<Case>) -> Result<()> {
    for (set, file, device, mode, weight) in TIMM {
        let device = device_of(device)?;
        let layout = if set.ends_with("nhwc") { "-nhwc" } else { "" };
        let stride = if mode == "infer" { INFERENCE_STRIDE } else { 1 };
        for row in table(&truth.join("timm").join(format!("{file}.csv")))?.iter().step_by(stride) {
            let field = |name: &str| row.get(&format!("{mode}_{name}")).map_or("", String::as_str);
            let model = row.get("model").map_or("", String::as_str);
            let (size, batch) = (field("img_size"), field("batch_size"));
            let list = format!("{model}-{size}-b{batch}{layout}.json");
            let milliseconds: f64 = field("step_time").parse()?;
            let Some(list) = operator_list(&lists.join(mode).join(list))? else { continue };
            let millions: f64 = row.get("param_count").map_or("", String::as_str).parse()?;
            if mode == "train" && (updated(&list) / (millions * 1e6) - 1.0).abs() > 0.05 {
                println!("{model}: the list is of another model with this name");
                continue;
            }
            let group = format!("family {}", family(model));
            cases.push(step(set, model, group, device, &PLAIN, &list, milliseconds * 1e6, weight));
        }
    }
    Ok(())
}

/// The number of parameters that the optimizer updates: each has a momentum, which is multiplied.
fn updated(list: &OpList) -> f64 {
    let multiplied = list.ops.iter().filter(|op| op.phase == Phase::Optimizer).filter_map(|op| {
        let operator = list.operator(op)?;
        (operator.base_name() == Some("mul_")).then(|| operator.tensor(0).map(Tensor::elements))?
    });
    multiplied.sum()
}

/// Reads language models in single precision.
fn transformers(truth: &Path, lists: &Path, cases: &mut Vec<Case>) -> Result<()> {
    for row in table(&truth.join("neusight/models.csv"))? {
        let field = |name: &str| row.get(name).map_or("", String::as_str);
        if !field("variant").is_empty() {
            continue;
        }
        let (model, mode) = (field("model"), field("mode"));
        let list =
            format!("{model}-{mode}-s{}-b{}.json", field("sequence_length"), field("batch_size"));
        let Some(list) = operator_list(&lists.join("neusight").join(list))? else { continue };
        let device = device_of(&field("gpu").replace('_', " "))?;
        let name = format!("{model}-{mode}-{}", field("batch_size"));
        let milliseconds: f64 = field("iteration_ms").parse()?;
        let group = device.name.clone();
        cases.push(step(
            "transformer",
            &name,
            group,
            device,
            &PLAIN,
            &list,
            milliseconds * 1e6,
            2.0 * relevance(device),
        ));
    }
    Ok(())
}

/// Programs of `lambda/` that are not usable here: GNMT's sentences have unknown lengths, and its
/// layers are listed step by step.
const EXCLUDED: [&str; 1] = ["gnmt"];

/// Reads training steps on one GPU in FP32 (or TF32) and in FP16.
fn benchmarks(truth: &Path, lists: &Path, cases: &mut Vec<Case>) -> Result<()> {
    let mut tables = LambdaTables::default();
    for kind in ["throughput", "batch-size"] {
        for precision in ["fp32", "fp16"] {
            let name = format!("train-{kind}-{precision}.csv");
            let bytes = std::fs::read(truth.join("lambda").join(&name))?;
            tables.read(&name, &bytes).map_err(anyhow::Error::msg)?;
        }
    }
    for row in tables.rows() {
        if row.gpus != 1 || EXCLUDED.contains(&row.model.as_str()) {
            continue;
        }
        let (model, batch, half) = (row.model.clone(), row.batch, row.half);
        let file = ListRequest::Benchmark { model, batch, half }.file_name();
        let table = DeviceTable::shipped();
        let gpu = named_with_power(&row.gpu, row.watts, table).map(|named| named.device);
        let (Some(list), Some(program), Some(device)) =
            (operator_list(&lists.join(file))?, benchmark(&row.model), gpu)
        else {
            continue;
        };
        let milliseconds =
            program.step_milliseconds(f64::from(row.batch), row.gpus, row.per_second);
        let set = if half { "benchmark-fp16" } else { "benchmark-fp32" };
        let case = step(
            set,
            &format!("{} {}", row.machine, row.model),
            device.name.clone(),
            device,
            &WITH_TF32,
            &list,
            milliseconds * 1e6,
            0.5,
        );
        cases.push(case);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn step(
    set: &str,
    name: &str,
    group: String,
    device: &'static DeviceSpec,
    options: &'static Options,
    list: &OpList,
    measured_ns: f64,
    weight: f64,
) -> Case {
    let mut counts = vec![0.0_f64; list.signatures.len()];
    for op in &list.ops {
        counts[op.signature as usize] += 1.0;
    }
    let mut plans = Vec::new();
    for (operator, count) in list.signatures.iter().zip(counts) {
        let plan = Plan::new(operator, device, options);
        if plan.launches() > 0.0 && count > 0.0 {
            plans.push((plan, count));
        }
    }
    let (set, name) = (set.to_owned(), name.to_owned());
    Case { set, name, group, device, options, plans, is_step: true, measured_ns, weight }
}

fn operator_list(path: &Path) -> Result<Option<OpList>> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = std::fs::read(path)?;
    let list = OpList::parse(&bytes).with_context(|| format!("{}", path.display()))?;
    Ok(Some(list))
}

/// The first letters of the name without the publisher of the weights: `resnext` of
/// `ig_resnext101_32x8d`.
fn family(model: &str) -> String {
    const PUBLISHERS: [&str; 8] =
        ["tf_", "legacy_", "gluon_", "ssl_", "swsl_", "ig_", "eca_", "test_"];
    let bare = PUBLISHERS.iter().find_map(|maker| model.strip_prefix(maker)).unwrap_or(model);
    bare.chars().take_while(char::is_ascii_alphabetic).collect()
}

const OPERATORS: [&str; 9] =
    ["linear", "bmm", "conv", "add", "mulu", "gelu", "tanh", "ln", "softmax"];

/// The maximum number of rows of one operator on one device, so that all have a similar weight.
const MAX_ROWS: usize = 120;

/// The times include the host's launch time, 20 to 90 microseconds, which dominates the shortest
/// rows. It is subtracted, and only rows longer than the shortest by this factor are used.
const MIN_OF_SHORTEST: f64 = 8.0;

/// Kernel time of the shortest row, in milliseconds.
const MIN_KERNEL_MS: f64 = 0.005;

/// Reads single operators in single precision.
fn operators(truth: &Path, set: &str, cases: &mut Vec<Case>) -> Result<()> {
    let mut by_device: BTreeMap<String, Vec<HashMap<String, String>>> = BTreeMap::new();
    for row in table(&truth.join("neusight/ops").join(format!("{set}.csv")))? {
        by_device.entry(row.get("gpu").cloned().unwrap_or_default()).or_default().push(row);
    }
    for (gpu, rows) in by_device {
        let device = device_of(&gpu)?;
        let time = |row: &HashMap<String, String>| {
            row.get("latency_ms").and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let shortest = rows.iter().map(time).fold(f64::INFINITY, f64::min);
        let mut long: Vec<_> =
            rows.iter().filter(|row| time(row) > MIN_OF_SHORTEST * shortest).collect();
        // The files are sorted by the swept sizes.
        let stride = long.len().div_ceil(MAX_ROWS).max(1);
        long = long.into_iter().step_by(stride).collect();
        for row in long {
            let Some(operator) = operator(set, row) else { continue };
            let plan = Plan::new(&operator, device, &PLAIN);
            cases.push(Case {
                set: set.to_owned(),
                name: format!("{set} {:?}", operator.outputs.first().map(|out| &out.shape)),
                group: device.name.clone(),
                device,
                options: &PLAIN,
                plans: vec![(plan, 1.0)],
                is_step: false,
                measured_ns: (time(row) - (shortest - MIN_KERNEL_MS).max(0.0)) * 1e6,
                weight: 0.03 * relevance(device),
            });
        }
    }
    Ok(())
}

fn operator(set: &str, row: &HashMap<String, String>) -> Option<Operator> {
    let number = |name: &str| row.get(name)?.parse::<u64>().ok();
    let tensor = |shape: &[u64]| Tensor::new(ElementType::Float32, shape);
    let arg = |shape: &[u64]| Arg::Tensor(tensor(shape));
    let pair = |value: u64| Arg::List(vec![Arg::Number(value as f64); 2]);
    Some(match set {
        "linear" | "bmm" => {
            let (batch, rows) = (number("B")?, number("M")?);
            let (columns, inner) = (number("N")?, number("K")?);
            if set == "bmm" {
                let inputs = vec![arg(&[batch, rows, inner]), arg(&[batch, inner, columns])];
                Operator::new("aten::bmm", inputs, vec![tensor(&[batch, rows, columns])])
            } else {
                let rows = batch * rows;
                let inputs = vec![arg(&[columns]), arg(&[rows, inner]), arg(&[inner, columns])];
                Operator::new("aten::addmm", inputs, vec![tensor(&[rows, columns])])
            }
        }
        "conv" => {
            let (batch, from, to) =
                (number("B")?, number("Input_Channel")?, number("Output_Channel")?);
            let (window, size) = (number("Kernel_Szie")?, number("Input_Size")?);
            let (stride, padding) = (number("Stride")?, number("Padding")?);
            let out = (size + 2 * padding).checked_sub(window)? / stride.max(1) + 1;
            let inputs = vec![
                arg(&[batch, from, size, size]),
                arg(&[to, from, window, window]),
                Arg::None,
                pair(stride),
                pair(padding),
                pair(1),
                Arg::Bool(false),
                pair(0),
                Arg::Number(1.0),
            ];
            Operator::new("aten::convolution", inputs, vec![tensor(&[batch, to, out, out])])
        }
        _ => {
            let (batch, width) = (number("B")?, number("H")?);
            let x = || arg(&[batch, width]);
            let out = tensor(&[batch, width]);
            match set {
                "add" => Operator::new("aten::add.Tensor", vec![x(), x()], vec![out]),
                "mulu" => Operator::new("aten::mul.Tensor", vec![x(), Arg::Number(2.0)], vec![out]),
                "gelu" => Operator::new("aten::gelu", vec![x()], vec![out]),
                "tanh" => Operator::new("aten::tanh", vec![x()], vec![out]),
                "softmax" => Operator::new("aten::_softmax", vec![x()], vec![out]),
                "ln" => {
                    let inputs = vec![x(), Arg::Number(1.0), arg(&[width]), arg(&[width])];
                    let row = tensor(&[batch, 1]);
                    Operator::new("aten::native_layer_norm", inputs, vec![out, row.clone(), row])
                }
                _ => return None,
            }
        }
    })
}

/// The weight of a device. The P4 of the data drops to a sixth of its peak in long GEMMs, where
/// others report 90% (4.96 of 5.5 TFLOP/s): it overheats, which says nothing about other devices.
fn relevance(device: &DeviceSpec) -> f64 {
    match device.capability() {
        Some((6, 1)) => 0.02,
        _ if is_current_generation(device) => 1.0,
        _ => 0.2,
    }
}

fn is_current_generation(device: &DeviceSpec) -> bool {
    device.capability() >= Some((7, 0))
}

fn device_of(name: &str) -> Result<&'static DeviceSpec> {
    let table = DeviceTable::shipped();
    table.find(name).with_context(|| format!("{name} is not in the table of devices"))
}

/// Reads a CSV file with a header.
fn table(path: &Path) -> Result<Vec<HashMap<String, String>>> {
    let mut reader = csv::Reader::from_path(path).with_context(|| format!("{}", path.display()))?;
    let rows: Result<Vec<_>, csv::Error> = reader.deserialize().collect();
    rows.with_context(|| format!("{}", path.display()))
}
