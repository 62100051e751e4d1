//! `tiny-kernels`: so many small operators that launching them takes longer than running them:
//! parameters that are updated one by one, and on a GPU lines whose kernels finish faster than the
//! host can launch them (PyTorch, "Performance Tuning Guide"; `torch._foreach_*`, CUDA graphs).

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::line_sums::{Line, by_line, highest_first};
use crate::loop_cost::{Replacement, loop_cost};
use crate::loops::{LoopKind, loops};
use crate::rule::Rule;
use ridgeline_graph::graph::TaskKind;
use ridgeline_optimize::rewrite::EditKind;
use ridgeline_profile::Phase;

/// The minimum share of the iteration time.
const MIN_SHARE: f64 = 0.03;
/// The minimum number of parameters.
const MIN_PARAMETERS: f64 = 16.0;
/// The minimum number of kernels from one line.
const MIN_KERNELS: u32 = 100;
/// The maximum average kernel duration, in nanoseconds: shorter kernels take less time than their
/// launch.
const MAX_KERNEL_NS: f64 = 10_000.0;
/// The maximum share of the iteration in which the GPU is busy; below it, the GPU waits for the
/// host.
const MAX_BUSY_SHARE: f64 = 0.5;

pub(super) struct TinyKernels;

impl Rule for TinyKernels {
    fn name(&self) -> &'static str {
        "tiny-kernels"
    }

    fn title(&self) -> &'static str {
        "Many small kernels dominated by launch overhead"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        let mut found = parameter_loops(evidence);
        found.extend(launch_bound_lines(evidence).unwrap_or_default());
        found
    }
}

/// Loops over parameters.
fn parameter_loops(evidence: &Evidence<'_>) -> Vec<Finding> {
    let loops = loops(evidence.program).into_iter();
    let found = loops.filter(|one| one.kind == LoopKind::Parameters).filter_map(|one| {
        let found = loop_cost(evidence, &one, MIN_PARAMETERS, false, Replacement::Foreach)?;
        (evidence.share(found.saved_ns) >= MIN_SHARE).then(|| Finding {
            rule: "tiny-kernels",
            at: evidence.place(found.at.0, found.at.1),
            loop_lines: found.places(evidence),
            message: format!("{:.0} parameters are updated one by one", found.trips),
            why: "Launching each update takes longer than computing it. `torch._foreach_mul_`, \
                `torch._foreach_add_`, `torch._foreach_lerp_` and similar functions update all \
                tensors in one call. For weight averaging, use \
                `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`."
                .to_owned(),
            cost: Some(Cost::time(found.saved_ns).predicted()),
            ..Finding::default()
        })
    });
    found.collect()
}

/// Lines whose kernel launches the GPU waits for.
fn launch_bound_lines(evidence: &Evidence<'_>) -> Option<Vec<Finding>> {
    if !evidence.on_gpu() {
        return None;
    }
    let tasks = evidence.graph().tasks.iter();
    let kernels = tasks.filter(|task| task.kind == TaskKind::Kernel && !task.is_removed);
    let busy_ns: f64 = kernels.map(|task| task.duration_ns).sum();
    if evidence.share(busy_ns) > MAX_BUSY_SHARE {
        return None;
    }
    // The optimizer step has its own rule.
    let counted = |key: &crate::evidence::Key| matches!(key.2, Phase::Forward | Phase::Backward);
    let count = by_line(evidence, |key, work, _| counted(key).then(|| f64::from(work.kernels)));
    let time = by_line(evidence, |key, work, _| counted(key).then_some(work.kernel_ns));
    let host = by_line(evidence, |key, work, _| counted(key).then_some(work.host_ns));
    let all_ns: f64 = host.values().sum();
    let of = |line: &Line, map: &std::collections::BTreeMap<Line, f64>| {
        map.get(line).copied().unwrap_or(0.0)
    };
    let crowded: Vec<(Line, f64)> = highest_first(host)
        .into_iter()
        .filter(|(line, _)| of(line, &count) >= f64::from(MIN_KERNELS))
        .filter(|(line, _)| of(line, &time) < MAX_KERNEL_NS * of(line, &count))
        .take(3)
        .collect();
    if crowded.is_empty() {
        return None;
    }
    // The remaining work of the host has to be done even without launches: use the savings of one
    // CUDA graph for all of them.
    let saved_ns = evidence.what_if("cuda-graphs").map(|found| found.time_ns)?;
    let found = crowded.into_iter().filter_map(|(line, host_ns)| {
        let cost_ns = saved_ns * host_ns / all_ns;
        let kernels = of(&line, &count);
        (evidence.share(cost_ns) >= MIN_SHARE).then(|| Finding {
            rule: "tiny-kernels",
            at: evidence.place(line.0, line.1),
            message: format!(
                "{kernels:.0} kernels of {:.1} µs on average are launched here",
                of(&line, &time) / kernels / 1e3
            ),
            why: "The GPU finishes each kernel before the CPU has launched the next one, and \
                idles. `torch.compile` fuses them (`mode=\"reduce-overhead\"` launches them as one \
                CUDA graph), and a larger batch makes each of them bigger."
                .to_owned(),
            cost: Some(Cost::time(cost_ns).predicted()),
            fix: Some(EditKind::Compile),
            ..Finding::default()
        })
    });
    Some(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Case, operator};

    const EMA: &str = "import torch\n\n\
        def update(average, model):\n\
        \x20   done = 0\n\
        \x20   for a, p in zip(average.parameters(), model.parameters()):\n\
        \x20       a.lerp_(p, 0.1)\n\n\
        update(1, 2)\n";
    const SMALL: &[u64] = &[64];

    fn ema(parameter_loops: u32, others_us: f64) -> Case {
        let mut example =
            Case::new(EMA).line_calls(4, 1.0).line_calls(6, f64::from(parameter_loops)).call(
                8,
                Phase::Forward,
                &operator("mm", &[&[64, 64], &[64, 64], &[64, 64]]),
                others_us,
            );
        for size in 0..parameter_loops {
            let shape: &[u64] = &[64 + u64::from(size)];
            let step = operator("lerp_", &[shape, shape, shape]);
            example = example.gap(6, Phase::Other, 3.0).call(6, Phase::Other, &step, 4.0);
        }
        example
    }

    #[test]
    fn parameter_loop() {
        let found = ema(40, 500.0).measured(&TinyKernels);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 5);
        let cost = found[0].cost.expect("a cost");
        // The Python overhead remains once, and each operator runs as before.
        assert!((cost.time_ns - 39.0 * 3e3).abs() < 1e3 && cost.is_predicted, "{cost:?}");
        assert!(ema(4, 500.0).measured(&TinyKernels).is_empty());
        assert!(ema(40, 1e6).measured(&TinyKernels).is_empty());
    }

    #[test]
    fn hand_written_update() {
        let text = "import torch\n\nfor x in data:\n    model(x).sum().backward()\n    \
            for p in model.parameters():\n        with torch.no_grad():\n            p -= 0.1 * p.grad\n";
        let mut case = Case::new(text)
            .line_calls(4, 1.0)
            .line_calls(5, 41.0)
            .line_calls(6, 80.0)
            .line_calls(7, 40.0);
        for size in 0..40 {
            let shape: &[u64] = &[64 + size];
            case = case
                .gap(7, Phase::Other, 3.0)
                .call(7, Phase::Other, &operator("mul", &[shape, shape]), 4.0)
                .call(7, Phase::Other, &operator("sub_", &[shape, shape]), 4.0);
        }
        let found = case.measured(&TinyKernels);
        assert_eq!((found.len(), found[0].at.line), (1, 5));
        assert!(found[0].message.starts_with("40 parameters"), "{}", found[0].message);
        assert!(
            found[0].cost.is_some_and(|cost| cost.time_ns > 39.0 * 2.9e3),
            "{:?}",
            found[0].cost
        );
    }

    #[test]
    fn two_adjacent_loops() {
        let text = "import torch\n\nwith torch.no_grad():\n    for p in model.parameters():\n        \
            p.mul_(0.9)\n    for a, p in zip(average.parameters(), model.parameters()):\n        \
            a.lerp_(p, 0.1)\n";
        let mut case = Case::new(text)
            .line_calls(4, 41.0)
            .line_calls(5, 40.0)
            .line_calls(6, 41.0)
            .line_calls(7, 40.0);
        for (line, name) in [(5, "mul_"), (7, "lerp_")] {
            for size in 0..40 {
                let shape: &[u64] = &[64 + size];
                case = case.gap(line, Phase::Other, 3.0);
                case = case.call(line, Phase::Other, &operator(name, &[shape, shape]), 4.0);
            }
        }
        let found = case.measured(&TinyKernels);
        assert_eq!(found.iter().map(|one| one.at.line).collect::<Vec<_>>(), [4, 6]);
        assert!(found.iter().all(|one| one.message.starts_with("40 ")), "{found:?}");
    }

    const MODEL: &str = "import torch\n\ny = model(x)\ny.backward()\n";

    fn model(kernels: u32, kernel_us: f64) -> Case {
        let step = operator("relu", &[SMALL, SMALL]);
        Case::new(MODEL).on_gpu().calls(kernels, 3, Phase::Forward, &step, kernel_us)
    }

    #[test]
    fn launch_bound_line() {
        let found = model(300, 2.0).measured(&TinyKernels);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at.line, 3);
        assert!(found[0].message.starts_with("300 kernels of 2.0 µs"), "{}", found[0].message);
        assert!(found[0].cost.is_some_and(|cost| cost.time_ns > 1e6));
    }

    #[test]
    fn unknown_gpu_is_also_checked() {
        let mut unknown = model(300, 2.0);
        unknown.device = Err("not in the device table".to_owned());
        assert_eq!(unknown.measured(&TinyKernels), model(300, 2.0).measured(&TinyKernels));
    }

    #[test]
    fn busy_gpu_or_few_kernels_are_not_reported() {
        assert!(model(300, 50.0).measured(&TinyKernels).is_empty());
        assert!(model(20, 2.0).measured(&TinyKernels).is_empty());
    }
}
