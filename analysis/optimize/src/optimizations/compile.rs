//! `torch.compile`: elementwise operators, norms and reductions become few kernels that keep
//! intermediate results in registers, and Python runs once for the whole region (Ansel et al.,
//! "PyTorch 2", ASPLOS 2024, sections 3 and 4). Matrix multiplications and convolutions stay.

use std::collections::{HashMap, HashSet};

use super::shared::fusion::{Fusion, fusions};
use super::shared::layout::compiler_takes_channels_last;
use super::shared::once::Once;
use super::shared::parts::Machine;
use super::shared::{compiled, factors, lines, overhead};
use crate::facts::Facts;
use crate::optimization::{Bound, Effect, Optimization};
use crate::rewrite::EditKind;
use ridgeline_graph::calls::{Call, calls, has_kernels};
use ridgeline_graph::graph::{Graph, Task, TaskId, TaskKind};
use ridgeline_graph::memory::BlockKind;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::Operator;
use ridgeline_operators::range::Range;
use ridgeline_profile::{FileId, Phase};

/// Time to check the guards of a compiled region and enter it, in each pass, in nanoseconds:
/// assumed, tens of microseconds on a current CPU.
pub(super) const ENTER_NS: Range = Range { low: 20_000.0, value: 50_000.0, high: 100_000.0 };
/// Remaining share of the host time of a call that is not fused: it bypasses the dispatcher and
/// autograd. Assumed.
const REMAINING_CALL_SHARE: Range = Range { low: 0.4, value: 0.6, high: 0.9 };

/// Uncertainty factor of fused operators on a CPU.
const CPU_UNCERTAINTY: f64 = 1.3;
/// Slowdown of the gradient of an embedding on a CPU, and of a convolution.
const EMBEDDING_BACKWARD: f64 = 2.0;
const CONVOLUTION: f64 = 1.1;

pub(super) struct Compile;

impl Optimization for Compile {
    fn name(&self) -> &'static str {
        "compile"
    }

    fn title(&self) -> &'static str {
        "torch.compile"
    }

    fn source(&self) -> &'static str {
        "Ansel et al., \"PyTorch 2\", ASPLOS 2024, sections 3 and 4"
    }

    fn apply(&self, graph: &mut Graph, facts: &Facts<'_>, bound: Bound) -> Result<Effect, String> {
        if is_compiled(graph, facts) {
            return Err("the model is already compiled".to_owned());
        }
        let lines = compile_model(graph, facts, bound)?;
        let notes = vec![
            "compilation slows down the first iterations, and happens again for new shapes"
                .to_owned(),
        ];
        Ok(Effect { lines, notes, ..Effect::default() })
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::Compile)
    }

    fn is_compatible_with(&self, other: &dyn Optimization) -> bool {
        !["batch-norm", "layer-fusion", "compile", "cuda-graphs"].contains(&other.name())
    }
}

/// Compiles the model's forward and backward pass. Returns their lines.
///
/// # Errors
/// Fails if the recording has no operators of the model.
pub(super) fn compile_model(
    graph: &mut Graph,
    facts: &Facts<'_>,
    bound: Bound,
) -> Result<Vec<(FileId, u32)>, String> {
    let calls = calls(graph);
    // Without modules, the model's share of the forward pass is unknown.
    let knows_modules = calls.iter().any(|call| call.module.is_some());
    let calls_of = |phase: Phase| -> Vec<&Call> {
        let is_inside =
            |call: &&Call| call.phase == phase && (call.module.is_some() || !knows_modules);
        calls.iter().filter(is_inside).collect()
    };
    let passes = [calls_of(Phase::Forward), calls_of(Phase::Backward)];
    if passes.iter().all(Vec::is_empty) {
        return Err("the recording has no operator shapes".to_owned());
    }
    let region: Vec<&Call> = passes.iter().flatten().copied().collect();
    let lines = lines::of_calls(graph, region.iter().copied());
    for pass in passes.iter().filter(|pass| !pass.is_empty()) {
        fuse(graph, facts, pass, bound);
        reduce_host_time(graph, pass, knows_modules, bound);
    }
    Ok(lines)
}

pub(super) fn is_compiled(graph: &Graph, facts: &Facts<'_>) -> bool {
    facts.manifest.is_some_and(|manifest| !manifest.compiled.is_empty())
        || graph.names.iter().any(|name| name.starts_with("triton_"))
}

/// Scales the work of a pass to its time in fused kernels, by the factors of its parts. Operators
/// that join a kernel have no launch of their own.
fn fuse(graph: &mut Graph, facts: &Facts<'_>, pass: &[&Call], bound: Bound) {
    let all = graph.operators.clone();
    let known: Vec<(&Call, &Operator)> = pass
        .iter()
        .filter_map(|call| Some((*call, all.get(call.operator as usize)?)))
        .filter(|(call, _)| !call.work.is_empty())
        .collect();
    let operators: Vec<&Operator> = known.iter().map(|(_, operator)| *operator).collect();
    let machine = Machine { device: facts.device, options: facts.options };
    let factors = factors::compiled();
    let turned = compiler_takes_channels_last(&operators);
    // The family by operator, and the ratio of its times by operator and role.
    let mut families: Once<'_, Family> = Once::new();
    let mut ratios: HashMap<(u32, RoleKey), f64> = HashMap::new();
    let mut opened: Option<&Call> = None;
    let mut inside: HashSet<u32> = HashSet::new();
    let mut before: Option<&Call> = None;
    for ((call, operator), role) in known.into_iter().zip(fusions(&operators)) {
        let family =
            families.of(operator, |it| work(it).map_or(Family::Unknown, |work| work.family));
        let ratio = *ratios.entry((call.operator, key(role))).or_insert_with(|| {
            let (ratio, range) = if facts.is_gpu() {
                let parts = compiled::of(operator, role, turned, &machine);
                (factors.operator_ratio(&parts).unwrap_or(1.0), factors.range)
            } else {
                (cpu_ratio(family, call.phase), CPU_UNCERTAINTY)
            };
            bound.within_factor(ratio, if runs_library_kernel(family) { 1.0 } else { range })
        });
        graph.scale(&call.work, ratio);
        let opens = matches!(role, Fusion::Opens);
        match (role, opened) {
            (Fusion::Joins(_), Some(opened)) => {
                let work_ns = opened.work_ns(graph) + call.work_ns(graph);
                call.remove(graph);
                opened.set_work_ns(graph, work_ns);
                // Its input is never written to memory.
                inside.extend(before.map(|before| before.number));
            }
            _ => {
                let is_view = family == Family::View;
                opened = if opens { Some(call) } else { opened.filter(|_| is_view) };
            }
        }
        before = Some(call);
    }
    graph.change_blocks(|block| {
        let is_stored = matches!(block.kind, BlockKind::Activations | BlockKind::Temporaries);
        if is_stored && block.call.is_some_and(|call| inside.contains(&call)) {
            block.bytes = 0.0;
        }
    });
}

/// A hashable [`Fusion`].
type RoleKey = (u8, u64);

fn key(role: Fusion) -> RoleKey {
    match role {
        Fusion::Apart => (0, 0),
        Fusion::Opens => (1, 0),
        Fusion::Joins(besides) => (2, besides.to_bits()),
        Fusion::CastsWeight => (3, 0),
    }
}

/// Whether the compiler calls PyTorch's own kernel for a family.
fn runs_library_kernel(family: Family) -> bool {
    matches!(family, Family::Gemm | Family::Convolution | Family::Attention | Family::Rnn)
}

/// Returns the factor on an operator's time on a CPU. The fitted factors are for GPUs. On a CPU,
/// the gains of fusion are lost again in the backward pass, and matrix multiplications and
/// convolutions stay: of the chains of operators run forward and backward on two cores, most took
/// as long or longer when compiled. The gradient of an embedding is then accumulated entry by entry
/// into a zeroed table (`docs/accuracy.md`, "Compiling for a CPU").
fn cpu_ratio(family: Family, phase: Phase) -> f64 {
    match (family, phase) {
        (Family::Embedding, Phase::Backward) => EMBEDDING_BACKWARD,
        (Family::Convolution, _) => CONVOLUTION,
        _ => 1.0,
    }
}

/// Reduces Python's time within a pass to entering the region. Each remaining call costs less.
fn reduce_host_time(graph: &mut Graph, pass: &[&Call], knows_modules: bool, bound: Bound) {
    let Some(phase) = pass.first().map(|call| call.phase) else { return };
    let is_gap = |task: &Task| {
        task.kind == TaskKind::HostGap
            && task.phase == phase
            && (task.module.is_some() || !knows_modules || phase == Phase::Backward)
            && !computes(task)
    };
    let gaps: Vec<TaskId> = graph.select(is_gap);
    let gaps_ns: f64 = gaps.iter().filter_map(|id| graph.task(*id)).map(|t| t.duration_ns).sum();
    if gaps_ns > 0.0 {
        graph.scale(&gaps, (bound.of(ENTER_NS) / gaps_ns).min(1.0));
    }
    if has_kernels(graph) {
        // A call takes at least its launch time.
        let launch_ns = overhead::launch_ns(graph);
        for call in pass {
            let now_ns = call.host_ns(graph);
            if now_ns > launch_ns {
                let then_ns = (now_ns * bound.of(REMAINING_CALL_SHARE)).max(launch_ns);
                graph.scale(&call.host, then_ns / now_ns);
            }
        }
    }
}

/// Whether a gap is an operator without shapes that computes on the CPU. With a GPU, it dispatches.
fn computes(task: &Task) -> bool {
    task.is_in_operator && task.name.is_some()
}

#[cfg(test)]
mod tests {
    use super::super::shared::testing::{Iteration, cpu, gpu, operator};
    use super::*;
    use crate::facts::Probes;

    const SIZE: &[u64] = &[1024, 1024];

    fn elementwise() -> Iteration {
        let mut iteration = Iteration::on_gpu();
        for name in ["mul", "gelu", "add", "relu"] {
            iteration = iteration
                .call(Phase::Forward, operator(name, &[SIZE, SIZE]), 20.0)
                .gap(Phase::Forward, 100.0);
        }
        iteration
    }

    #[test]
    fn consecutive_elementwise_operators_become_one_kernel() {
        let graph = elementwise().changed(&gpu("8.0"), &Compile);
        assert_eq!(graph.select(|task| task.kind == TaskKind::Kernel).len(), 1);
        let found = elementwise().predict(&gpu("8.0"), &Probes::default(), &Compile).unwrap();
        // Python took 440 µs, of which 50 µs remain.
        assert!(found.time_ns.value < 0.4 * found.before_ns, "{found:?}");
    }

    #[test]
    fn operators_without_shapes_on_a_cpu_stay() {
        let mut iteration = Iteration::on_cpu()
            .call(Phase::Forward, operator("relu", &[SIZE, SIZE]), 1_000.0)
            .gap(Phase::Forward, 9_000.0);
        let name = iteration.graph.name("aten::mkldnn_convolution");
        let gap = iteration.graph.tasks.iter_mut().last().expect("a gap");
        (gap.is_in_operator, gap.name) = (true, Some(name));
        let found = iteration.predict(&cpu(), &Probes::default(), &Compile).unwrap();
        assert!(found.time_ns.value > 9e6, "{found:?}");
    }

    #[test]
    fn reasons_for_not_applying() {
        let why = "the recording has no operator shapes";
        assert_eq!(Iteration::on_cpu().refusal(&cpu(), &Compile), why);
        let mut compiled = elementwise();
        compiled.graph.name("triton_poi_fused_add_0");
        assert_eq!(compiled.refusal(&gpu("8.0"), &Compile), "the model is already compiled");
    }
}
