//! The most expensive operators of each line, with their shapes, work and kernels.

use std::collections::HashMap;

use super::Sums;
use super::backward::ENGINE_PREFIX;
use super::contexts::{ContextId, Contexts};
use super::costs::is_within;
use super::join::Join;
use super::kernels::{KernelSums, launched_within};
use super::lines::{LineIndex, Lines};
use super::replays::Replays;
use crate::metrics::op_flops::{OpWork, op_work};
use ridgeline_profile::{OPERATORS_PER_LINE, OperatorCost, Phase};
use ridgeline_recording::StringId;
use ridgeline_recording::trace::Operator;

/// The number of innermost frames of a stack whose lines list an operator. Outer lines only have
/// totals.
const MAX_STACK_DEPTH: usize = 24;
/// The maximum number of kernels stored per operator.
const KERNELS_PER_OPERATOR: usize = 8;
/// The maximum number of inputs that are displayed.
const MAX_INPUTS: usize = 4;
/// If an operator spends more than this share of its time outside of operators with known work, its
/// number of operations is unknown, because the known part would be too low. Small operators spend
/// up to about a third on dispatch and on being recorded.
const MAX_UNKNOWN_SHARE: f64 = 0.5;

/// PyTorch's name for the dispatch of an operator to a tensor subclass written in Python. The
/// operator around it has the shapes of the subclass (a DTensor's global shapes), the operators
/// within it have those that this process computes.
const SUBCLASS_DISPATCH: &str = "PythonSubclass";

/// Two calls are equal if their signatures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Signature {
    name: StringId,
    dims: Option<StringId>,
    types: Option<StringId>,
}

/// Calls of one signature in one context.
#[derive(Debug, Default)]
struct Group {
    calls: f64,
    host_ns: f64,
    work: Option<OpWork>,
    kernels: KernelSums,
}

/// Returns the contexts of shown operators that ran within the windows, or were captured in a CUDA
/// graph that was replayed there; `None` for all others.
pub(super) fn contexts_of_shown_operators(
    join: &Join<'_>,
    contexts: &mut Contexts<'_>,
    replays: &Replays,
) -> Vec<Option<ContextId>> {
    (0_u32..)
        .zip(join.trace.operators.iter().zip(&join.shown))
        .map(|(index, (operator, shown))| {
            let ran = is_within(join.windows, operator.start_ns)
                || replays.of_captured(operator.start_ns).is_some();
            (*shown == index && ran).then(|| contexts.of_operator(index))
        })
        .collect()
}

/// Adds to each line its most expensive operators.
pub(super) fn add_operators(
    join: &Join<'_>,
    contexts: &Contexts<'_>,
    shown_contexts: &[Option<ContextId>],
    sums: &Sums,
    lines: &mut Lines,
) {
    let scale = &sums.scale;
    let groups = groups(join, shown_contexts, sums);
    let on_device = !join.trace.activities.is_empty();
    let own_lines: Vec<Option<LineIndex>> = groups
        .iter()
        .map(|((_, context), _)| {
            lines.innermost(&join.places.log.stacks, contexts.get(*context)?.line)
        })
        .collect();
    // A line lists each signature once, however many contexts it ran in.
    let mut by_line: HashMap<(LineIndex, Signature, Phase), Vec<usize>> = HashMap::new();
    for (index, ((signature, context), _)) in groups.iter().enumerate() {
        let Some(context) = contexts.get(*context) else { continue };
        lines.each_on(&join.places.log.stacks, context.stacks(), MAX_STACK_DEPTH, |line, _| {
            by_line.entry((line, *signature, context.phase)).or_default().push(index);
        });
    }
    let time_of = |group: &((Signature, ContextId), Group)| {
        if on_device {
            group.1.kernels.time_ns() * scale.per_iteration
        } else {
            let factor = scale.contexts.get(group.0.1.0 as usize).copied().unwrap_or(0.0);
            group.1.host_ns * factor
        }
    };
    let mut ranked: Vec<(LineIndex, f64, Signature, Phase, Vec<usize>)> = by_line
        .into_iter()
        .map(|((line, signature, phase), members)| {
            let time_ns = members.iter().filter_map(|&index| groups.get(index)).map(time_of).sum();
            (line, time_ns, signature, phase, members)
        })
        .filter(|(_, time_ns, ..)| *time_ns > 0.0)
        .collect();
    ranked.sort_by(|a, b| {
        (a.0.cmp(&b.0)).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)).then(a.3.cmp(&b.3))
    });
    for (line, time_ns, signature, phase, members) in ranked {
        let Some(cost) = lines.cost_mut(line) else { continue };
        let is_own = |index: &&usize| own_lines.get(**index).copied().flatten() == Some(line);
        let own = members.iter().filter(is_own).filter_map(|&index| groups.get(index));
        let self_time_ns = own.map(time_of).sum();
        let members: Vec<&Group> =
            members.iter().filter_map(|&index| groups.get(index)).map(|(_, group)| group).collect();
        let work = members.iter().map(|member| member.work).reduce(add_work).flatten();
        let flops = work.map(|work| work.flops * scale.per_iteration);
        cost.flops += flops.unwrap_or(0.0);
        if cost.operators.len() >= OPERATORS_PER_LINE {
            continue;
        }
        let mut kernels = KernelSums::default();
        for member in &members {
            kernels.merge(&member.kernels);
        }
        let mut kernels = kernels.finish(join.trace, scale.per_iteration);
        kernels.truncate(KERNELS_PER_OPERATOR);
        let name = join.trace.text(signature.name);
        cost.operators.push(OperatorCost {
            name: name.strip_prefix(ENGINE_PREFIX).unwrap_or(name).to_owned(),
            phase: Some(phase),
            calls: members.iter().map(|member| member.calls).sum::<f64>() * scale.per_iteration,
            time_ns,
            self_time_ns,
            inputs: inputs_text(
                join.trace.text_or_empty(signature.dims),
                join.trace.text_or_empty(signature.types),
            ),
            flops,
            bytes: work.and_then(|work| Some(work.bytes? * scale.per_iteration)),
            kernels,
        });
    }
}

fn groups(
    join: &Join<'_>,
    shown_contexts: &[Option<ContextId>],
    sums: &Sums,
) -> Vec<((Signature, ContextId), Group)> {
    let trace = join.trace;
    let mut index_of: HashMap<(Signature, ContextId), usize> = HashMap::new();
    let mut groups: Vec<((Signature, ContextId), Group)> = Vec::new();
    let mut group_of_operator: Vec<Option<usize>> = vec![None; trace.operators.len()];
    let works = works(join);
    for (index, context) in shown_contexts.iter().enumerate() {
        let (Some(context), Some(operator)) = (context, trace.operators.get(index)) else {
            continue;
        };
        let key = (signature(join, index, operator), *context);
        let work = works.get(index).copied().flatten();
        let group = *index_of.entry(key).or_insert_with(|| {
            groups.push((key, Group { work: Some(OpWork::zero()), ..Group::default() }));
            groups.len() - 1
        });
        if let (Some(entry), Some((_, group_sums))) =
            (group_of_operator.get_mut(index), groups.get_mut(group))
        {
            *entry = Some(group);
            let ran = sums.launches.replays.of_captured(operator.start_ns).map_or(1.0, f64::from);
            let work = work.map(|work| work.times(ran));
            group_sums.calls += ran;
            group_sums.host_ns += sums.costs.operators.get(index).copied().unwrap_or(0.0);
            group_sums.work = add_work(group_sums.work, work);
        }
    }
    for (index, activity) in launched_within(join, &sums.launches) {
        let group = sums
            .launches
            .operator(index)
            .and_then(|operator| join.shown.get(operator))
            .and_then(|shown| group_of_operator.get(*shown as usize).copied().flatten());
        if let Some((_, group)) = group.and_then(|group| groups.get_mut(group)) {
            group.kernels.add(join.trace, activity, &sums.device);
        }
    }
    groups
}

fn signature(join: &Join<'_>, index: usize, operator: &Operator) -> Signature {
    // Autograd's engine records no shapes for the range around a node, but does for the node
    // itself.
    let within = join.trace.operators.get(index + 1).filter(|_| {
        operator.input_dims.is_none() && join.parent_of(index as u32 + 1) == Some(index as u32)
    });
    let with_shapes = within.unwrap_or(operator);
    Signature { name: operator.name, dims: with_shapes.input_dims, types: with_shapes.input_types }
}

/// Returns the work of each shown operator: the sum over the outermost operators within it whose
/// work is known.
fn works(join: &Join<'_>) -> Vec<Option<OpWork>> {
    let operators = &join.trace.operators;
    let mut cache: HashMap<[Option<StringId>; 4], Option<OpWork>> = HashMap::new();
    // By operator: whether it is, or runs within, an operator with known work.
    let mut covered = vec![false; operators.len()];
    let dispatches = dispatches(join);
    let dispatches = |index: usize| dispatches.get(index) == Some(&true);
    let mut sums = vec![(OpWork::zero(), 0.0); operators.len()];
    for (index, operator) in (0_u32..).zip(operators) {
        let shown = join.shown_operator_of(index).unwrap_or(index);
        let within_known = shown != index
            && join
                .parent_of(index)
                .is_some_and(|parent| covered.get(parent as usize) == Some(&true));
        let Operator { name, input_dims, input_types, concrete_inputs, .. } = *operator;
        let work = if within_known || dispatches(index as usize) {
            None
        } else {
            *cache.entry([Some(name), input_dims, input_types, concrete_inputs]).or_insert_with(
                || {
                    let text = |id| join.trace.text_or_empty(id);
                    let (dims, types) = (text(input_dims), text(input_types));
                    op_work(join.trace.text(name), dims, types, text(concrete_inputs))
                },
            )
        };
        if let Some(entry) = covered.get_mut(index as usize) {
            *entry = within_known || work.is_some();
        }
        if let (Some(work), Some((sum, known_ns))) = (work, sums.get_mut(shown as usize)) {
            *sum = sum.plus(work);
            *known_ns += operator.duration_ns as f64;
        }
    }
    operators
        .iter()
        .zip(sums)
        .enumerate()
        .map(|(index, (operator, (work, known_ns)))| {
            let all_ns = operator.duration_ns as f64;
            // The dispatch takes longer than the operators that it calls.
            let known = if dispatches(index) {
                known_ns > 0.0
            } else {
                all_ns - known_ns <= MAX_UNKNOWN_SHARE * all_ns
            };
            known.then_some(work)
        })
        .collect()
}

/// Returns whether each operator, or one within it, is dispatched to a tensor subclass.
fn dispatches(join: &Join<'_>) -> Vec<bool> {
    let operators = join.trace.operators.iter();
    let mut dispatches: Vec<bool> =
        operators.map(|operator| join.trace.text(operator.name) == SUBCLASS_DISPATCH).collect();
    // Children come after their parents.
    for (index, parent) in join.parents.iter().enumerate().rev() {
        let within = dispatches.get(index) == Some(&true);
        if let Some(parent) = parent.filter(|_| within)
            && let Some(outer) = dispatches.get_mut(parent as usize)
        {
            *outer = true;
        }
    }
    dispatches
}

fn add_work(a: Option<OpWork>, b: Option<OpWork>) -> Option<OpWork> {
    Some(a?.plus(b?))
}

/// Formats the tensors among the inputs: `[32, 64] float, [64] float`.
fn inputs_text(dims: &str, types: &str) -> String {
    let dims: Vec<serde_json::Value> = serde_json::from_str(dims).unwrap_or_default();
    let types: Vec<String> = serde_json::from_str(types).unwrap_or_default();
    let is_tensor = |type_name: &str| !matches!(type_name, "" | "Scalar" | "ScalarList" | "None");
    let mut tensors = dims.iter().zip(&types).filter(|(_, type_name)| is_tensor(type_name)).map(
        |(shape, type_name)| match type_name.as_str() {
            // The types of a list's tensors are not recorded, nor the shapes of a long list.
            "TensorList" if shape.as_array().is_none_or(Vec::is_empty) => "tensors".to_owned(),
            "TensorList" => shape_text(shape),
            type_name => format!("{} {type_name}", shape_text(shape)),
        },
    );
    let mut shown: Vec<String> = tensors.by_ref().take(MAX_INPUTS).collect();
    if tensors.next().is_some() {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}

/// Formats a shape: `[32, 64]`, or `16 × [1, 28, 28]` for a list of tensors.
fn shape_text(shape: &serde_json::Value) -> String {
    let parts = shape.as_array().map(Vec::as_slice).unwrap_or_default();
    match parts.split_first() {
        Some((first, others)) if first.is_array() => {
            let same = others.iter().all(|other| other == first);
            let first = if same { shape_text(first) } else { "tensors".to_owned() };
            format!("{} × {first}", parts.len())
        }
        _ => {
            let sizes: Vec<String> = parts.iter().map(ToString::to_string).collect();
            format!("[{}]", sizes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_written_as_shapes_and_types() {
        let text =
            inputs_text(r"[[32, 64], [64], [], []]", r#"["float", "long int", "Scalar", ""]"#);
        assert_eq!(text, "[32, 64] float, [64] long int");
        let list = inputs_text("[[[1,28],[1,28]]]", r#"["TensorList"]"#);
        assert_eq!(list, "2 × [1, 28]");
        assert_eq!(inputs_text("[[],[]]", r#"["TensorList","float"]"#), "tensors, [] float");
        assert_eq!(inputs_text("", ""), "");
        assert_eq!(inputs_text("[3]", r#"["float"]"#), "[] float");
    }
}
