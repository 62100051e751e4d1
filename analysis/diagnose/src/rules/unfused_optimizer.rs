//! `unfused-optimizer`: an optimizer that updates one parameter after another, or with foreach
//! kernels, although PyTorch has a fused kernel for it (NVIDIA Apex, FusedAdam; PyTorch,
//! `fused=True`).

use std::collections::BTreeSet;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding, SourceLine};
use crate::line_sums::{by_line, highest_first};
use crate::rule::Rule;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_optimize::rewrite::optimizers::makes_optimizer;
use ridgeline_profile::Phase;
use ridgeline_recording::manifest::Optimizer;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.03;
/// The first PyTorch version in which all optimizers with `fused=True` support it on a CPU, and on
/// a GPU.
const FUSED_ON_CPU: (u32, u32) = (2, 5);
const FUSED_ON_GPU: (u32, u32) = (2, 3);

pub(super) struct UnfusedOptimizer;

impl Rule for UnfusedOptimizer {
    fn name(&self) -> &'static str {
        "unfused-optimizer"
    }

    fn title(&self) -> &'static str {
        "Unfused optimizer"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        find(evidence).into_iter().collect()
    }
}

fn find(evidence: &Evidence<'_>) -> Option<Finding> {
    let manifest = evidence.manifest()?;
    // Passing `fused=False` or `foreach=False` is a choice.
    let is_chosen = |it: &Optimizer| it.fused.is_some() || it.foreach.is_some();
    if manifest.optimizers.iter().all(is_chosen) || has_sparse_gradients(evidence) {
        return None;
    }
    // The optimizer phase also includes zeroing gradients.
    let update_time = by_line(evidence, |key, done, operator| {
        let is_zeroing = operator.name.contains("zero");
        (key.2 == Phase::Optimizer && !is_zeroing).then(|| done.host_ns.max(done.kernel_ns))
    });
    let total_ns: f64 = update_time.values().sum();
    if evidence.share(total_ns) < MIN_SHARE {
        return None;
    }
    let needed = if evidence.on_gpu() { FUSED_ON_GPU } else { FUSED_ON_CPU };
    let has_fused = version(&manifest.torch).is_some_and(|version| version >= needed);
    let worthwhile = |name: &str| {
        evidence.what_if(name).filter(|found| evidence.share(found.time_ns) >= MIN_SHARE)
    };
    let fused = has_fused.then(|| worthwhile("fused-optimizer")).flatten();
    let (found, fix, argument) = match fused {
        Some(found) => (found, EditKind::FusedOptimizer, "fused=True"),
        // A CPU has no foreach kernels: it runs one operator after another anyway.
        None if !evidence.on_gpu() => return None,
        None => (worthwhile("foreach-optimizer")?, EditKind::ForeachOptimizer, "foreach=True"),
    };
    let ((file, line), _) = *highest_first(update_time).first()?;
    let names = manifest.optimizers.iter().map(|optimizer| optimizer.type_name.as_str());
    let names: BTreeSet<&str> = names.collect();
    let names: Vec<&str> = names.into_iter().collect();
    let cause =
        if evidence.on_gpu() { "many small kernels" } else { "several passes over each parameter" };
    let related = creation_sites(evidence);
    let is_own = !related.is_empty();
    let how = match is_own {
        true => format!("Pass `{argument}` to the optimizer to fuse them"),
        false => format!(
            "A library creates the optimizer: pass `{argument}` through its settings to fuse them, if it has such"
        ),
    };
    Some(Finding {
        rule: "unfused-optimizer",
        at: evidence.place(file, line),
        related,
        message: format!("{} is not fused: {cause}", names.join(" and ")),
        why: format!(
            "Each parameter is updated by several ops, and each op reads and writes all of its \
            data. {how}; same results up to rounding."
        ),
        cost: Some(Cost::time(found.time_ns).predicted()),
        fix: is_own.then_some(fix),
        ..Finding::default()
    })
}

/// Whether embeddings use `sparse=True`, whose gradients no fused optimizer supports
/// (`torch/optim/sgd.py`).
fn has_sparse_gradients(evidence: &Evidence<'_>) -> bool {
    let mut operators = evidence.graph().operators.iter();
    operators.any(|operator| {
        ["coalesce", "sparse_backward", "sparse_coo"].iter().any(|it| operator.name.contains(it))
    })
}

/// Where optimizers are created.
fn creation_sites(evidence: &Evidence<'_>) -> Vec<(SourceLine, String)> {
    let program = evidence.program;
    let made =
        program.calls().filter(|(module, call)| makes_optimizer(program, *module, &call.callee));
    let places = made.filter_map(|(module, call)| {
        let (file, line) =
            evidence.recorded_line(module, program.module(module).line(call.span.start))?;
        Some((evidence.place(file, line), "the optimizer is created here".to_owned()))
    });
    places.take(4).collect()
}

/// `(2, 15)` for `2.15.0+cu128`.
fn version(torch: &str) -> Option<(u32, u32)> {
    let mut parts = torch.split(['.', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};
    use ridgeline_recording::manifest::{Module, Parameter};

    const TEXT: &str = "import torch\n\
        optimizer = torch.optim.Adam(model.parameters())\n\
        for x in data:\n\
        \x20   loss = model(x).sum()\n\
        \x20   loss.backward()\n\
        \x20   optimizer.step()\n";
    const SIZE: &[u64] = &[64, 64];

    /// Adam on 40 small parameters, next to a forward pass of this many microseconds.
    fn example(on_gpu: bool, forward_us: f64, fused: Option<bool>) -> Case {
        example_of(TEXT, on_gpu, forward_us, fused)
    }

    fn example_of(text: &str, on_gpu: bool, forward_us: f64, fused: Option<bool>) -> Case {
        let start = if on_gpu { Case::new(text).on_gpu() } else { Case::new(text) };
        let mut example = start
            .with_manifest(|it| {
                it.optimizers =
                    vec![Optimizer { type_name: "Adam".to_owned(), fused, ..Optimizer::default() }];
                let weight = Parameter { elements: 4096, bytes: 16384, ..Parameter::default() };
                it.modules = vec![Module { parameters: vec![weight; 40], ..Module::default() }];
            })
            .call(4, Phase::Forward, &operator("mm", &[SIZE, SIZE, SIZE]), forward_us);
        for _ in 0..40 {
            for name in ["lerp_", "mul_", "addcmul_", "sqrt", "addcdiv_"] {
                let step = operator(name, &[SIZE, SIZE, SIZE]);
                example = example.call(6, Phase::Optimizer, &step, 8.0);
            }
        }
        example
    }

    #[test]
    fn unfused_updates_on_cpu_and_gpu() {
        for on_gpu in [false, true] {
            let found = example(on_gpu, 1000.0, None).measured(&UnfusedOptimizer);
            assert_eq!(found.len(), 1, "{on_gpu}");
            assert_eq!(found[0].at.line, 6);
            assert_eq!(found[0].related[0].0.line, 2);
            assert_eq!(found[0].fix, Some(EditKind::FusedOptimizer));
            assert!(found[0].cost.is_some_and(|cost| cost.is_predicted && cost.time_ns > 5e5));
        }
    }

    #[test]
    fn an_optimizer_of_a_library_has_no_fix() {
        let text = TEXT.replace("torch.optim.Adam(model.parameters())", "library.make(model)");
        let found = example_of(&text, false, 1000.0, None).measured(&UnfusedOptimizer);
        assert_eq!((found.len(), found[0].fix), (1, None));
        assert!(found[0].why.contains("A library creates the optimizer"), "{}", found[0].why);
    }

    #[test]
    fn fused_chosen_or_cheap_optimizers_are_not_reported() {
        assert!(example(false, 1000.0, Some(true)).measured(&UnfusedOptimizer).is_empty());
        assert!(example(false, 1e6, None).measured(&UnfusedOptimizer).is_empty());
        for foreach in [true, false] {
            let chosen = example(false, 1000.0, None);
            let chosen = chosen.with_manifest(|it| it.optimizers[0].foreach = Some(foreach));
            assert!(chosen.measured(&UnfusedOptimizer).is_empty(), "{foreach}");
        }
        let none = example(false, 1000.0, None).with_manifest(|it| it.optimizers.clear());
        assert!(none.measured(&UnfusedOptimizer).is_empty());
    }

    #[test]
    fn optimizers_without_a_faster_variant_are_not_reported() {
        let other = |on_gpu: bool, name: &str| {
            let example = example(on_gpu, 1000.0, None);
            example.with_manifest(|it| it.optimizers[0].type_name = name.to_owned())
        };
        for name in ["LBFGS", "Lion"] {
            assert!(other(true, name).measured(&UnfusedOptimizer).is_empty(), "{name}");
        }
        let found = other(true, "RMSprop").measured(&UnfusedOptimizer);
        assert_eq!(found[0].fix, Some(EditKind::ForeachOptimizer));
        assert!(other(false, "RMSprop").measured(&UnfusedOptimizer).is_empty());
    }

    #[test]
    fn complex_parameters_are_not_fused() {
        let real = operator("view_as_real", &[SIZE, &[64, 64, 2]]);
        let complex = example(false, 1000.0, None).call(6, Phase::Optimizer, &real, 1.0);
        assert!(complex.measured(&UnfusedOptimizer).is_empty());
    }

    #[test]
    fn older_torch_versions_are_respected() {
        let old = |on_gpu: bool| {
            let example = example(on_gpu, 1000.0, None);
            example
                .with_manifest(|it| it.torch = "2.1.0+cpu".to_owned())
                .measured(&UnfusedOptimizer)
        };
        assert_eq!(old(true)[0].fix, Some(EditKind::ForeachOptimizer));
        assert!(old(false).is_empty());
        assert_eq!(version("2.15.0+cu128"), Some((2, 15)));
        assert_eq!(version("nightly"), None);
    }
}
