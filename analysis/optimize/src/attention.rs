//! Finds attention that is written out in separate operators, and the fused operator that could
//! replace it.

use ridgeline_graph::calls::{Call, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};

/// The maximum number of calls inspected on either side of a softmax, views excluded.
const MAX_DISTANCE: usize = 12;
/// The same with views: an `einsum` permutes each of its operands with six.
const MAX_DISTANCE_WITH_VIEWS: usize = 48;

/// The forward or backward pass of one attention, written out.
pub struct Attention<'c> {
    /// The calls from the first matrix multiplication to the last.
    pub calls: Vec<&'c Call>,
    /// Number of elements of the scores.
    pub scores: f64,
    /// The fused operator.
    pub fused: Operator,
    /// Whether PyTorch has a fused operator for it. The one for CPUs does not support dropout
    /// (`use_flash_attention_cpp` in `sdp_utils_cpp.cpp`).
    pub has_operator: bool,
}

/// Finds the operators around each softmax with inputs or outputs as large as the scores.
pub fn attentions<'c>(graph: &Graph, calls: &'c [Call]) -> Vec<Attention<'c>> {
    let mut found = Vec::new();
    // Lines with dropout on the weights. The backward pass only shows a multiplication.
    let mut lines_with_dropout = Vec::new();
    // Where PyTorch's fused operator is called already. It may run separate operators, but only their
    // backward passes are recorded.
    let is_operator = |call: &&Call| call.name(graph).ends_with("scaled_dot_product_attention");
    let lines_with_operator: Vec<_> =
        calls.iter().filter(is_operator).filter_map(|call| call.line).collect();
    let on_cpu = !has_kernels(graph);
    let family = |operator: &Operator| work(operator).map(|work| work.family);
    let families: Vec<Option<Family>> = graph.operators.iter().map(family).collect();
    let family = |call: &Call| families.get(call.operator as usize).copied().flatten();
    for (place, call) in calls.iter().enumerate() {
        let Some(operator) = call.operator(graph) else { continue };
        if family(call) != Some(Family::Softmax) {
            continue;
        }
        let Some(scores) = operator.tensor(0).filter(|tensor| tensor.shape.len() >= 3) else {
            continue;
        };
        let size = scores.elements();
        let touches = |call: &Call| {
            let operator = call.operator(graph);
            operator.is_some_and(|it| {
                let mut tensors = it.input_tensors().chain(&it.outputs);
                // The other operand of a matrix multiplication may be copied for it just before.
                tensors.any(|tensor| tensor.elements() == size)
                    || matches!(family(call), None | Some(Family::View | Family::Copy))
            })
        };
        let nearby = |calls: &mut dyn Iterator<Item = &'c Call>| -> Vec<&'c Call> {
            let mut seen = 0;
            let is_near = |call: &&Call| {
                seen += usize::from(family(call) != Some(Family::View));
                seen <= MAX_DISTANCE && touches(call)
            };
            calls.take(MAX_DISTANCE_WITH_VIEWS).take_while(is_near).collect()
        };
        let (before, after) = calls.split_at(place);
        let mut window = nearby(&mut before.iter().rev());
        window.reverse();
        window.extend(nearby(&mut after.iter()));
        let is_matmul = |call: &&Call| family(call) == Some(Family::Gemm);
        let first = window.iter().position(is_matmul);
        let last = window.iter().rposition(is_matmul);
        let (Some(first), Some(last)) = (first, last) else { continue };
        let window = window.get(first..=last).unwrap_or_default().to_vec();
        let backward = call.name(graph).ends_with("_backward_data");
        let matmuls = window.iter().copied().filter(is_matmul).count();
        let first = window.first().and_then(|first| first.operator(graph));
        let fused = first.and_then(|first| fused(first, scores, backward, on_cpu));
        if window.iter().any(|call| call.operator(graph).is_some_and(has_dropout)) {
            lines_with_dropout.extend(call.line);
        }
        if let Some(fused) = fused.filter(|_| matmuls >= if backward { 3 } else { 2 }) {
            let attention = Attention { calls: window, scores: size, fused, has_operator: true };
            found.push((call.line, attention));
        }
    }
    let is_written_out = |(line, _): &(Option<_>, Attention<'c>)| {
        line.is_none_or(|line| !lines_with_operator.contains(&line))
    };
    let found = found.into_iter().filter(is_written_out).map(|(line, attention)| {
        let has_dropout = line.is_some_and(|line| lines_with_dropout.contains(&line));
        Attention { has_operator: !(on_cpu && has_dropout), ..attention }
    });
    found.collect()
}

/// Whether an operator applies dropout.
fn has_dropout(operator: &Operator) -> bool {
    let is_dropout = operator.base_name().is_some_and(|name| name.contains("dropout"));
    let is_on = !matches!(operator.inputs.get(2), Some(Arg::Bool(false)));
    let share = operator.inputs.get(1);
    is_dropout && is_on && !matches!(share, Some(Arg::Number(share)) if *share == 0.0)
}

/// Returns the fused operator. `matmul` is the first matrix multiplication: queries by keys, or in
/// the backward pass weights by the output's gradient or the output's gradient by values.
fn fused(matmul: &Operator, scores: &Tensor, backward: bool, on_cpu: bool) -> Option<Operator> {
    let place = usize::from(matches!(matmul.base_name(), Some("baddbmm")));
    let (left, right) = (matmul.tensor(place)?, matmul.tensor(place + 1)?);
    // In the backward pass, the first may compute the gradient of the values from the weights.
    let is_of_weights = left.elements() == scores.elements();
    let width = *if is_of_weights { right } else { left }.shape.last()?;
    let [batch @ .., queries, keys] = scores.shape.as_slice() else { return None };
    let element = left.element.or(Some(ElementType::Float32));
    let heads = batch.iter().product();
    let tensor = |rows: u64| {
        let mut shape = vec![1, heads, rows, width];
        shape.retain(|size| *size > 0);
        Tensor { element, shape, strides: None }
    };
    let (query, key) = (tensor(*queries), tensor(*keys));
    let arg = |tensor: &Tensor| Arg::Tensor(tensor.clone());
    let name = match (on_cpu, backward) {
        (true, false) => "aten::_scaled_dot_product_flash_attention_for_cpu",
        (true, true) => "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        (false, false) => "aten::_scaled_dot_product_efficient_attention",
        (false, true) => "aten::_scaled_dot_product_efficient_attention_backward",
    };
    let mut inputs = vec![arg(&query), arg(&key), arg(&key)];
    if !backward {
        return Some(Operator::new(name, inputs, vec![query]));
    }
    inputs.insert(0, arg(&query));
    if on_cpu {
        // The output, the log-sum-exp of the rows, no dropout, and no causal mask.
        let log_sum_exp = Tensor::new(ElementType::Float32, &[1, heads, *queries]);
        inputs.extend([arg(&query), arg(&log_sum_exp), Arg::Number(0.0), Arg::Bool(false)]);
    }
    Some(Operator::new(name, inputs, vec![query, key.clone(), key]))
}
