//! The most expensive operators of lines whose cost differs from the measurement, with the shapes
//! of the current text. Other lines keep their measured operators.

use std::collections::HashMap;

use super::costed::CostedOperators;
use super::lines::{Lines, on_stack};
use super::scale::ScaledUnits;
use ridgeline_operators::operator::{Arg, Operator, Tensor};
use ridgeline_profile::{OPERATORS_PER_LINE, OperatorCost, Phase};

/// The maximum number of inputs shown.
const MAX_INPUTS: usize = 4;

/// Sets the operators of the lines.
pub(super) fn list(lines: &mut Lines, now: &CostedOperators<'_>, scaled: &ScaledUnits) {
    let differing: Vec<bool> = lines.list.iter().map(|line| line.differs()).collect();
    let mut found: HashMap<(usize, u32, Phase), (f64, f64)> = HashMap::new();
    for (group, unit) in now.groups.iter().zip(&scaled.of_now) {
        let time = scaled.estimated_time(now, group, *unit);
        for at in on_stack(now.list, &lines.of_now, group.stack) {
            if differing.get(at) == Some(&true) {
                let entry = found.entry((at, group.signature, group.phase)).or_default();
                entry.0 += group.calls;
                entry.1 += time;
            }
        }
    }
    for (line, _) in lines.list.iter_mut().zip(&differing).filter(|(_, differs)| **differs) {
        line.cost.operators.clear();
    }
    let mut ranked: Vec<_> = found.into_iter().collect();
    ranked.sort_by(|((a, signature_a, phase_a), (_, time_a)), (b, (_, time_b))| {
        let same = (signature_a, phase_a).cmp(&(&b.1, &b.2));
        a.cmp(&b.0).then(time_b.total_cmp(time_a)).then(same)
    });
    for ((at, signature, phase), (calls, time_ns)) in ranked {
        let Some(line) = lines.list.get_mut(at) else { continue };
        if line.cost.operators.len() < OPERATORS_PER_LINE {
            line.cost.operators.push(operator(now, signature, phase, calls, time_ns));
        }
    }
}

fn operator(
    now: &CostedOperators<'_>,
    signature: u32,
    phase: Phase,
    calls: f64,
    time_ns: f64,
) -> OperatorCost {
    let operator = now.list.signatures.get(signature as usize);
    let cost = now.costs.get(signature as usize).filter(|cost| cost.known);
    OperatorCost {
        name: operator.map(|operator| operator.name.clone()).unwrap_or_default(),
        phase: Some(phase),
        calls,
        time_ns,
        self_time_ns: 0.0,
        inputs: operator.map(inputs_text).unwrap_or_default(),
        flops: cost.map(|cost| cost.flops * calls),
        bytes: cost.map(|cost| cost.bytes * calls),
        kernels: Vec::new(),
    }
}

/// Formats the input tensors: `[32, 64], [64]`.
fn inputs_text(operator: &Operator) -> String {
    let mut tensors: Vec<&Tensor> = Vec::new();
    for input in &operator.inputs {
        match input {
            Arg::Tensor(tensor) => tensors.push(tensor),
            Arg::List(list) => tensors.extend(list.iter().filter_map(|arg| match arg {
                Arg::Tensor(tensor) => Some(tensor),
                _ => None,
            })),
            _ => {}
        }
    }
    let text = |tensor: &&Tensor| {
        let sizes: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        format!("[{}]", sizes.join(", "))
    };
    let mut shown: Vec<String> = tensors.iter().take(MAX_INPUTS).map(text).collect();
    if tensors.len() > MAX_INPUTS {
        shown.push("…".to_owned());
    }
    shown.join(", ")
}
