//! `float64`: operators on float64 tensors in a program that otherwise uses float32. NumPy arrays
//! are float64 by default, and so is the result of adding one to a float32 tensor. GPUs compute
//! float64 2 to 64 times slower, CPUs at half the speed, and each element takes twice the memory.

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::line_sums::{Line, highest_first};
use crate::rule::Rule;
use ridgeline_operators::operator::{ElementType, Operator, Tensor};
use ridgeline_operators::retyped::retyped;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_profile::Phase;
use ridgeline_python::semantics::module::last_name;
use ridgeline_recording::manifest::Parameter;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.02;
/// Smaller tensors, in elements, are counters and rates, whose dtype does not matter.
const MIN_ELEMENTS: f64 = 1024.0;
/// The share of the time that remains in float32: half of the bytes, and on a CPU half of the
/// vector operations.
const FLOAT32_SHARE: f64 = 0.5;

pub(super) struct Float64;

impl Rule for Float64 {
    fn name(&self) -> &'static str {
        "float64"
    }

    fn title(&self) -> &'static str {
        "Unintended float64 computation"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    // A program that trains in double precision on purpose, as in physics, sets it once for
    // everything or for the model.
    if sets_default(evidence.program) || has_double_weights(evidence) {
        return None;
    }
    let uses: Vec<Option<Use>> = evidence.graph().operators.iter().map(use_of).collect();
    let use_at = |operator: u32| uses.get(operator as usize).copied().flatten();
    let mut by_line: BTreeMap<Line, f64> = BTreeMap::new();
    let mut computes = false;
    for (key, work) in evidence.work {
        let Some((operator, how)) = evidence.operator(key).zip(use_at(key.3)) else { continue };
        computes |= how == Use::Computes;
        let saved_ns = saved(evidence, operator, how) * work.time_ns();
        if saved_ns > 0.0 {
            *by_line.entry((key.0, key.1)).or_default() += saved_ns;
        }
    }
    let total_ns: f64 = by_line.values().sum();
    // Data that is loaded in float64 and cast immediately is not a problem.
    if !computes || evidence.share(total_ns) < MIN_SHARE {
        return None;
    }
    // Where it begins: the first forward line that computes in float64.
    let tasks = evidence.graph().tasks.iter();
    let mut tasks = tasks.filter(|task| task.kind.is_host() && task.phase == Phase::Forward);
    let begin = tasks.find_map(|task| {
        let line = task.line?;
        let begins = use_at(task.operator?)? != Use::ToSingle;
        (begins && by_line.contains_key(&line)).then_some(line)
    });
    let lines = highest_first(by_line);
    let (file, line) = begin.or(lines.first().map(|(line, _)| *line))?;
    let mut related = origins(evidence);
    let others = lines.iter().filter(|(other, _)| *other != (file, line)).take(3);
    related.extend(others.map(|((file, line), _)| {
        (evidence.place(*file, *line), "also computes in float64".into())
    }));
    Some(Finding {
        rule: "float64",
        at: evidence.place(file, line),
        related,
        message: "This line computes in float64".to_owned(),
        why: "NumPy arrays are float64 by default, and a float64 tensor promotes every result to \
            float64. Convert the data with `.float()` or `dtype=torch.float32` where it is created \
            to keep training in float32."
            .to_owned(),
        cost: Some(Cost::time(total_ns).predicted()),
        ..Finding::default()
    })
}

/// How an operator uses float64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Computes,
    /// Casts float32 to float64.
    ToDouble,
    /// Casts float64 to float32.
    ToSingle,
}

fn use_of(operator: &Operator) -> Option<Use> {
    use ElementType::{Float32, Float64};
    let is_large = |tensor: &Tensor| tensor.elements() >= MIN_ELEMENTS;
    if operator.base_name() == Some("_to_copy") {
        let (from, to) = (operator.tensor(0)?, operator.outputs.first()?);
        return match (from.element?, to.element?) {
            (Float32, Float64) if is_large(to) => Some(Use::ToDouble),
            (Float64, Float32) if is_large(to) => Some(Use::ToSingle),
            _ => None,
        };
    }
    let mut tensors = operator.input_tensors();
    let computes = tensors.any(|tensor| tensor.element == Some(Float64) && is_large(tensor));
    computes.then_some(Use::Computes)
}

/// The share of an operator's time that float32 would save. A cast would disappear entirely.
fn saved(evidence: &Evidence<'_>, operator: &Operator, how: Use) -> f64 {
    if how != Use::Computes {
        return 1.0;
    }
    if !evidence.on_gpu() {
        return FLOAT32_SHARE;
    }
    let single = retyped(operator, ElementType::Float64, ElementType::Float32);
    // If the GPU is unknown, assume memory traffic, which halves.
    let ratio = evidence.facts().map(|facts| facts.modelled_ratio(operator, &single).value);
    ratio.map_or(FLOAT32_SHARE, |ratio| (1.0 - ratio).clamp(0.0, 1.0))
}

/// Whether the program sets a default dtype that may be float64.
fn sets_default(program: &Program<'_>) -> bool {
    const OTHER_DTYPES: [&str; 7] =
        ["float32", "float", "float16", "half", "bfloat16", "FloatTensor", "HalfTensor"];
    program.calls().any(|(module, call)| {
        let sets = matches!(call.name(), "set_default_dtype" | "set_default_tensor_type");
        let text = program.module(module).text(&call.span);
        let given = text.trim_end_matches([')', '\'', '"', ' ']);
        sets && !OTHER_DTYPES.contains(&last_name(given))
    })
}

/// Whether most weights are float64.
fn has_double_weights(evidence: &Evidence<'_>) -> bool {
    let modules = evidence.manifest().map(|manifest| manifest.modules.as_slice());
    let parameters = || modules.unwrap_or_default().iter().flat_map(|module| &module.parameters);
    let elements: u64 = parameters().map(|one| one.elements).sum();
    let is_double = |one: &&Parameter| one.bytes == one.elements.saturating_mul(8);
    let double: u64 = parameters().filter(is_double).map(|one| one.elements).sum();
    double.saturating_mul(2) > elements
}

/// Lines that create a float64 tensor: they name the dtype, or use an array from NumPy.
fn origins(evidence: &Evidence<'_>) -> Vec<(SourceLine, String)> {
    let program = evidence.program;
    let mut found: BTreeMap<(usize, u32), &'static str> = BTreeMap::new();
    for (module, call) in program.calls() {
        let text = program.module(module);
        let written = text.text(&call.span);
        let reason = match call.name() {
            "double" => "`.double()` converts it to float64",
            "from_numpy" => "NumPy arrays are float64 by default",
            "tensor" | "as_tensor" if written.contains("np.") || written.contains("numpy.") => {
                "NumPy arrays are float64 by default"
            }
            _ if written.contains("torch.float64") || written.contains("torch.double") => {
                "its dtype is float64"
            }
            _ => continue,
        };
        if written.contains("float32") || written.contains("int64") || written.ends_with(".float()")
        {
            continue;
        }
        found.entry((module, text.line(call.span.start))).or_insert(reason);
    }
    let places = found.into_iter().filter_map(|((module, line), reason)| {
        let (file, line) = evidence.recorded_line(module, line)?;
        Some((evidence.place(file, line), reason.to_owned()))
    });
    places.take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, of_type, operator};
    use ridgeline_recording::manifest::Module;

    const TEXT: &str = "import numpy as np\nimport torch\n\n\
        weights = torch.from_numpy(np.ones(4096))\n\
        y = model(x)\n\
        z = y * weights\n\
        loss = z.square().mean()\n";
    const SHAPE: &[u64] = &[256, 4096];

    fn example(text: &str, element: ElementType, double_us: f64) -> Case {
        let step = of_type(element, "mul", &[SHAPE, SHAPE, SHAPE]);
        Case::new(text)
            .call(5, Phase::Forward, &operator("relu", &[SHAPE, SHAPE]), 1000.0)
            .call(6, Phase::Forward, &step, double_us)
            .call(7, Phase::Forward, &of_type(element, "pow", &[SHAPE, SHAPE]), 2.0 * double_us)
            .call(6, Phase::Backward, &step, double_us)
    }

    #[test]
    fn first_line_and_its_origin_are_reported() {
        let found = example(TEXT, ElementType::Float64, 500.0).measured(&Float64);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 6);
        assert_eq!(found[0].cost, Some(Cost::time(1e6).predicted()));
        let related: Vec<u32> = found[0].related.iter().map(|(place, _)| place.line).collect();
        assert_eq!(related, [4, 7]);
    }

    #[test]
    fn float32_and_small_costs_are_not_reported() {
        assert!(example(TEXT, ElementType::Float32, 500.0).measured(&Float64).is_empty());
        assert!(example(TEXT, ElementType::Float64, 1.0).measured(&Float64).is_empty());
        let counter = of_type(ElementType::Float64, "add", &[&[1], &[1], &[1]]);
        let small = Case::new(TEXT).calls(100, 6, Phase::Forward, &counter, 5.0);
        assert!(small.measured(&Float64).is_empty());
    }

    #[test]
    fn casts_count_only_with_computation() {
        let cast = |from: ElementType, to: ElementType| {
            let mut cast = of_type(from, "_to_copy", &[SHAPE, SHAPE]);
            cast.outputs = vec![Tensor::new(to, SHAPE)];
            cast
        };
        let (single, double) = (ElementType::Float32, ElementType::Float64);
        // Loaded as NumPy provides it, and cast immediately.
        let text = "import torch\n\n\n\nx = x.float()\nz = x.double() * weights\n";
        let loaded = Case::new(text).call(5, Phase::Forward, &cast(double, single), 200.0);
        assert!(loaded.measured(&Float64).is_empty());
        let found = loaded
            .call(6, Phase::Forward, &cast(single, double), 300.0)
            .call(6, Phase::Forward, &of_type(double, "mul", &[SHAPE, SHAPE, SHAPE]), 400.0)
            .measured(&Float64);
        assert_eq!(found[0].at.line, 6, "where it begins");
        assert_eq!(found[0].cost, Some(Cost::time(7e5).predicted()));
    }

    #[test]
    fn float64_default_dtype_is_respected() {
        let found = |default: &str| {
            let text = format!("import torch\n{default}\n\n\ny = model(x)\nz = y\n");
            example(&text, ElementType::Float64, 500.0).measured(&Float64).len()
        };
        assert_eq!(found("torch.set_default_dtype(torch.float64)"), 0);
        assert_eq!(found("torch.set_default_dtype(DTYPE)"), 0);
        assert_eq!(found("torch.set_default_tensor_type('torch.DoubleTensor')"), 0);
        assert_eq!(found("torch.set_default_dtype(torch.float32)"), 1);
        assert_eq!(found("torch.set_default_tensor_type('torch.cuda.FloatTensor')"), 1);
    }

    #[test]
    fn float64_weights_are_respected() {
        let found = |bytes: [u64; 2]| {
            let parameters = bytes.map(|bytes| Parameter {
                elements: 4096,
                bytes: 4096 * bytes,
                ..Parameter::default()
            });
            let module = Module { parameters: parameters.to_vec(), ..Module::default() };
            let case = example(TEXT, ElementType::Float64, 500.0);
            case.with_manifest(|it| it.modules = vec![module]).measured(&Float64).len()
        };
        assert_eq!((found([8, 8]), found([4, 8]), found([4, 4])), (0, 1, 1));
    }

    #[test]
    fn cost_on_a_gpu_comes_from_the_cost_model() {
        let mut example = Case::new(TEXT).on_gpu();
        example = example.call(
            6,
            Phase::Forward,
            &of_type(ElementType::Float64, "mul", &[SHAPE, SHAPE, SHAPE]),
            900.0,
        );
        let found = example.measured(&Float64);
        assert!(
            found.iter().all(|one| one.cost.is_some_and(|cost| cost.time_ns < 9e5)),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
    }
}
