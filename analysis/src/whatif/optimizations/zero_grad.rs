//! `zero_grad(set_to_none=True)`: gradients are dropped rather than filled with zeros, so that
//! accumulating has nothing to add to (PyTorch performance tuning guide; the default since 2.0).

use crate::profile::Phase;
use crate::source::rewrite::EditKind;
use crate::whatif::facts::Facts;
use crate::whatif::graph::{Graph, Task};
use crate::whatif::optimization::{Bound, Optimization, Touched};

pub(super) struct ZeroGradToNone;

impl Optimization for ZeroGradToNone {
    fn name(&self) -> &'static str {
        "zero-grad-none"
    }

    fn title(&self) -> &'static str {
        "Gradients to none instead of zero"
    }

    fn source(&self) -> &'static str {
        "PyTorch performance tuning guide, \"Use parameter.grad = None\""
    }

    fn apply(&self, graph: &mut Graph, _: &Facts<'_>, _: Bound) -> Result<Touched, String> {
        let fills = graph.select(|task| task.phase == Phase::Optimizer && is_fill(graph, task));
        if fills.is_empty() {
            return Err("no gradient is filled with zeros".to_owned());
        }
        let mut touched = Touched::default();
        for id in fills {
            if let Some(line) = graph.task(id).and_then(|task| task.line) {
                touched.lines.push(line);
            }
            graph.remove(id);
        }
        touched.lines.sort_unstable();
        touched.lines.dedup();
        Ok(touched)
    }

    fn edit(&self) -> Option<EditKind> {
        Some(EditKind::ZeroGradToNone)
    }
}

fn is_fill(graph: &Graph, task: &Task) -> bool {
    graph.operator_of(task).is_some_and(|operator| {
        matches!(operator.base_name(), Some("zero_" | "_foreach_zero_" | "fill_"))
    })
}
