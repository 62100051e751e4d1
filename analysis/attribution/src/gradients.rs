//! The parameter gradients that autograd accumulates: the inputs of the `AccumulateGrad` nodes, with their shapes.

use std::collections::HashMap;

use crate::backward::ENGINE_PREFIX;
use ridgeline_operators::operator::Operator;
use ridgeline_recording::trace::{self, Trace};

/// A gradient that autograd accumulated.
pub(crate) struct Accumulated {
    /// When it was accumulated, by the trace's clock.
    pub(crate) end_ns: i64,
    /// Its size in bytes.
    pub(crate) bytes: f64,
}

/// Returns the gradients of an iteration in the order of the trace.
pub(crate) fn accumulated(recorded: &Trace, (start_ns, end_ns): (i64, i64)) -> Vec<Accumulated> {
    let mut sizes: HashMap<_, Option<f64>> = HashMap::new();
    let within = recorded.operators.iter().filter(|it| (start_ns..end_ns).contains(&it.start_ns));
    let gradient = |operator: &trace::Operator| {
        let key = (operator.name, operator.input_dims, operator.input_types);
        let bytes = *sizes.entry(key).or_insert_with(|| {
            let name = recorded.text(operator.name);
            if !name.ends_with("AccumulateGrad") || name.starts_with(ENGINE_PREFIX) {
                return None;
            }
            let text = |id| recorded.text_or_empty(id);
            let (dims, types) = (text(operator.input_dims), text(operator.input_types));
            let node = Operator::from_trace(name, dims, types, "")?;
            node.input_tensors().next()?.bytes()
        });
        bytes.map(|bytes| Accumulated { end_ns: operator.end_ns(), bytes })
    };
    within.filter_map(gradient).collect()
}
