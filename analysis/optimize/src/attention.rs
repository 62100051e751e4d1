//! Attention that is written out: which calls of an iteration are one, and what one operator would do
//! in their place.

use ridgeline_graph::calls::{Call, has_kernels};
use ridgeline_graph::graph::Graph;
use ridgeline_operators::op_cost::{Family, work};
use ridgeline_operators::operator::{Arg, ElementType, Operator, Tensor};

/// Calls on either side of a softmax that are looked at, views left out.
const REACH: usize = 12;
/// And with views: an `einsum` turns each of its factors around by six.
const REACH_WITH_VIEWS: usize = 48;

/// One attention's forward or backward pass, written out.
pub struct Attention<'c> {
    /// From the first product to the last one.
    pub calls: Vec<&'c Call>,
    /// Numbers of the pairs of queries and keys.
    pub scores: f64,
    /// The one operator.
    pub fused: Operator,
    /// Whether PyTorch has it for this: a processor's takes no dropout (`use_flash_attention_cpp` in
    /// `sdp_utils_cpp.cpp`).
    pub has_operator: bool,
}

/// The operators around each softmax that take or give tensors as large as the scores.
pub fn attentions<'c>(graph: &Graph, calls: &'c [Call]) -> Vec<Attention<'c>> {
    let mut found = Vec::new();
    // The lines whose weights are dropped out: the backward pass only shows a multiplication.
    let mut dropping = Vec::new();
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
                // A product's other factor may be copied for it just before.
                tensors.any(|tensor| tensor.elements() == size)
                    || matches!(family(call), None | Some(Family::View | Family::Copy))
            })
        };
        let near = |calls: &mut dyn Iterator<Item = &'c Call>| -> Vec<&'c Call> {
            let mut seen = 0;
            let is_near = |call: &&Call| {
                seen += usize::from(family(call) != Some(Family::View));
                seen <= REACH && touches(call)
            };
            calls.take(REACH_WITH_VIEWS).take_while(is_near).collect()
        };
        let (before, after) = calls.split_at(place);
        let mut around = near(&mut before.iter().rev());
        around.reverse();
        around.extend(near(&mut after.iter()));
        let is_product = |call: &&Call| family(call) == Some(Family::Gemm);
        let first = around.iter().position(is_product);
        let last = around.iter().rposition(is_product);
        let (Some(first), Some(last)) = (first, last) else { continue };
        let around = around.get(first..=last).unwrap_or_default().to_vec();
        let backward = call.name(graph).ends_with("_backward_data");
        let products = around.iter().copied().filter(is_product).count();
        let first = around.first().and_then(|first| first.operator(graph));
        let fused = first.and_then(|first| fused(first, scores, backward, on_cpu));
        if around.iter().any(|call| call.operator(graph).is_some_and(drops_out)) {
            dropping.extend(call.line);
        }
        if let Some(fused) = fused.filter(|_| products >= if backward { 3 } else { 2 }) {
            let attention = Attention { calls: around, scores: size, fused, has_operator: true };
            found.push((call.line, attention));
        }
    }
    let found = found.into_iter().map(|(line, attention)| {
        let drops_out = line.is_some_and(|line| dropping.contains(&line));
        Attention { has_operator: !(on_cpu && drops_out), ..attention }
    });
    found.collect()
}

/// Whether an operator sets some of its elements to 0 by chance.
fn drops_out(operator: &Operator) -> bool {
    let is_dropout = operator.base_name().is_some_and(|name| name.contains("dropout"));
    let is_on = !matches!(operator.inputs.get(2), Some(Arg::Bool(false)));
    let share = operator.inputs.get(1);
    is_dropout && is_on && !matches!(share, Some(Arg::Number(share)) if *share == 0.0)
}

/// The one operator, by the first product: queries by keys; backward weights by the output's gradient, or
/// that by values.
fn fused(product: &Operator, scores: &Tensor, backward: bool, on_cpu: bool) -> Option<Operator> {
    let place = usize::from(matches!(product.base_name(), Some("baddbmm")));
    let (left, right) = (product.tensor(place)?, product.tensor(place + 1)?);
    // Backward the first may be the gradient of the values, which is made of the weights.
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
        // What it gave, the logarithms of the sums of its rows, no dropout, and no mask of a triangle.
        let sums = Tensor::new(ElementType::Float32, &[1, heads, *queries]);
        inputs.extend([arg(&query), arg(&sums), Arg::Number(0.0), Arg::Bool(false)]);
    }
    Some(Operator::new(name, inputs, vec![query, key.clone(), key]))
}
