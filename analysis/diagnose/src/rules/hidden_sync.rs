//! `hidden-sync`: reading a tensor in the loop, for which the host waits until the GPU has computed
//! it (PyTorch, "Performance Tuning Guide: Avoid unnecessary CPU-GPU synchronization").

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeMap;

use tree_sitter::Node;

use crate::evidence::Evidence;
use crate::finding::{Cost, Finding};
use crate::rule::Rule;
use crate::source_queries::{
    callers, conditions_around, is_in_validation, loops_around, nodes_of_line,
};
use crate::waits::saved_without;
use ridgeline_graph::graph::{Graph, Resource, Task, TaskId, TaskKind};
use ridgeline_optimize::rewrite::syntax::{callee, within, written};
use ridgeline_profile::{FileId, Phase};
use ridgeline_python::semantics::module::{Module, last_name};
use ridgeline_recording::copies::{Direction, direction};

/// The minimum share of the iteration time that a fix saves.
const MIN_SHARE: f64 = 0.005;
/// The maximum number of lines checked, the longest waits first; each one is simulated.
const MAX_LINES: usize = 4;
/// The maximum number of calls followed from a line to the loop.
const MAX_CALL_DEPTH: u32 = 4;

/// A number, or the size of a tensor of few dimensions.
const SCALAR_BYTES: u64 = 64;

pub(super) struct HiddenSync;

impl Rule for HiddenSync {
    fn name(&self) -> &'static str {
        "hidden-sync"
    }

    fn title(&self) -> &'static str {
        "Synchronization in the training loop"
    }

    fn measured(&self, evidence: &Evidence<'_>) -> Vec<Finding> {
        if !evidence.on_gpu() || !evidence.is_replayed() {
            return Vec::new();
        }
        let mut lines = waiting_lines(evidence);
        lines.sort_by(|one, other| other.waited_ns.total_cmp(&one.waited_ns));
        lines.truncate(MAX_LINES);
        if lines.is_empty() {
            return Vec::new();
        }
        let saved = |waits: &[TaskId]| saved_without(evidence, waits);
        let least_ns = MIN_SHARE * evidence.iteration_ns();
        let separate: Vec<f64> = lines.iter().map(|line| saved(&line.waits)).collect();
        let all: Vec<TaskId> = lines.iter().flat_map(|line| line.waits.iter().copied()).collect();
        let together = if lines.len() > 1 { saved(&all) } else { separate.iter().sum() };
        // If two lines wait for the same work, removing only one saves nothing. What removing both
        // saves is divided in proportion to how long each waits.
        let shared_ns = (together - separate.iter().sum::<f64>()).max(0.0);
        let waited_ns: f64 = lines.iter().map(|line| line.waited_ns).sum();
        let found = lines.iter().zip(separate).filter_map(|(line, separate_ns)| {
            let time_ns = separate_ns + shared_ns * line.waited_ns / waited_ns.max(1.0);
            let is_worth = time_ns >= least_ns && time_ns > 0.0;
            is_worth.then(|| finding(evidence, line, time_ns))
        });
        found.collect()
    }
}

fn finding(evidence: &Evidence<'_>, line: &WaitingLine, time_ns: f64) -> Finding {
    Finding {
        rule: "hidden-sync",
        at: evidence.place(line.at.0, line.at.1),
        message: format!("{} synchronizes with the GPU every iteration", line.cause.display()),
        why: line.cause.why().to_owned(),
        cost: Some(Cost::time(time_ns).predicted()),
        ..Finding::default()
    }
}

/// A line that waits.
struct WaitingLine {
    at: (FileId, u32),
    waits: Vec<TaskId>,
    /// How long the host waits there in the simulated iteration, in nanoseconds.
    waited_ns: f64,
    cause: WaitCause,
}

/// The cause of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitCause {
    /// `.item()`, `print` and the like.
    Read(String),
    Condition,
    Nonzero(String),
    Mask,
    Upload,
    Explicit(String),
}

impl WaitCause {
    fn display(&self) -> String {
        match self {
            WaitCause::Read(name) | WaitCause::Nonzero(name) | WaitCause::Explicit(name) => {
                format!("`{name}`")
            }
            WaitCause::Condition => "A condition on a tensor".to_owned(),
            WaitCause::Mask => "Indexing with a mask".to_owned(),
            WaitCause::Upload => "A blocking copy to the GPU".to_owned(),
        }
    }

    fn why(&self) -> &'static str {
        match self {
            WaitCause::Read(_) => {
                "The CPU waits until the GPU has computed the value and launches nothing \
                meanwhile, so the GPU then idles. Keep a detached tensor, and read it every N \
                iterations or at the end."
            }
            WaitCause::Condition => {
                "Python needs the value, so the CPU waits until the GPU has computed it and \
                launches nothing meanwhile. Use `torch.where` to decide on the GPU, or run the \
                check only every N iterations."
            }
            WaitCause::Nonzero(_) | WaitCause::Mask => {
                "The number of elements depends on the data, so the CPU waits until the GPU has \
                counted them and launches nothing meanwhile. `torch.where`, or multiplying by the \
                mask, keeps the shape fixed."
            }
            WaitCause::Upload => {
                "The CPU waits until all queued GPU work and the copy have finished. Create the \
                tensor on the GPU (`device=…`) or once before the loop, or copy it from pinned \
                memory with `non_blocking=True`."
            }
            WaitCause::Explicit(_) => {
                "The CPU waits until the GPU has finished all queued work, and launches nothing \
                meanwhile. Explicit synchronization is needed for manual timing, not for training."
            }
        }
    }
}

/// The lines of the loop that wait for a GPU, if the text shows why.
fn waiting_lines(evidence: &Evidence<'_>) -> Vec<WaitingLine> {
    let graph = evidence.graph();
    let Some(host) = graph.find(&Resource::Host) else { return Vec::new() };
    let ends = &evidence.run.recorded.schedule.end_ns;
    let end = |id: Option<TaskId>| id.and_then(|id| ends.get(id.index())).copied();
    let copies = uploads(graph);
    /// A wait, and how long the host waits, in nanoseconds.
    type Wait<'a> = (TaskId, &'a Task, f64);
    let mut lines: BTreeMap<(FileId, u32), Vec<Wait<'_>>> = BTreeMap::new();
    for (id, task) in graph.iter() {
        let is_wait = task.kind == TaskKind::Wait && !task.is_removed && task.resource == host;
        let Some(at) = task.line.filter(|_| is_wait) else { continue };
        let waited_ns = end(Some(id)).zip(end(graph.before(id)).or(Some(0.0)));
        let waited_ns = waited_ns.map_or(0.0, |(until, from)| (until - from).max(0.0));
        lines.entry(at).or_default().push((id, task, waited_ns));
    }
    let found = lines.into_iter().filter_map(|(at, waits)| {
        let (module, line) = evidence.current_line(at.0, at.1)?;
        let text = evidence.program.module(module);
        let first = nodes_of_line(text, line).into_iter().next()?;
        if runs_occasionally(evidence, at) || is_occasional_in_text(evidence, module, first, 0) {
            return None;
        }
        let shown = waits.into_iter().filter_map(|(id, task, waited_ns)| {
            let kind = kind(graph, (id, task), &copies)?;
            Some((id, waited_ns, wait_cause(text, line, kind)?))
        });
        let shown: Vec<(TaskId, f64, WaitCause)> = shown.collect();
        Some(WaitingLine {
            at,
            waited_ns: shown.iter().map(|(_, waited_ns, _)| waited_ns).sum(),
            waits: shown.iter().map(|(id, ..)| *id).collect(),
            cause: shown.into_iter().next()?.2,
        })
    });
    found.collect()
}

/// The calls that copy from the host to a GPU.
fn uploads(graph: &Graph) -> Vec<u32> {
    let is_upload = |task: &&Task| ridgeline_graph::uploads::is_upload(graph, task);
    graph.tasks.iter().filter(is_upload).filter_map(|task| task.call).collect()
}

/// What an operator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitKind {
    /// A number that Python reads.
    Scalar,
    /// A tensor that is copied to the host.
    Download,
    Upload,
    /// A size that depends on the data.
    Size,
    /// A few bytes that are copied to the host: a number that Python reads, or a size.
    Few,
    /// No operator: `torch.cuda.synchronize()`.
    None,
}

fn kind(graph: &Graph, (id, task): (TaskId, &Task), uploads: &[u32]) -> Option<WaitKind> {
    let Some(operator) = graph.operator_of(task) else {
        // Operators without work of their own, such as `item` and `nonzero`, are not in the graph.
        return Some(match downloaded(graph, id) {
            Some(0..=SCALAR_BYTES) => WaitKind::Few,
            Some(_) => WaitKind::Download,
            None => WaitKind::None,
        });
    };
    match operator.base_name()? {
        "_local_scalar_dense" | "item" | "is_nonzero" | "equal" | "allclose" => {
            Some(WaitKind::Scalar)
        }
        "nonzero" | "index" | "index_put_" | "_index_put_impl_" | "masked_select" | "argwhere"
        | "where" | "unique" | "_unique" | "_unique2" | "unique_dim" | "unique_consecutive"
        | "bincount" | "repeat_interleave" => Some(WaitKind::Size),
        "copy_" | "_to_copy" | "to" | "clone" | "lift_fresh" => {
            let is_upload = task.call.is_some_and(|call| uploads.contains(&call));
            // Copies of batches to the GPU are left to the rules about loaders.
            let is_batch = is_upload && matches!(task.phase, Phase::Data | Phase::Other);
            let kind = if is_upload { WaitKind::Upload } else { WaitKind::Download };
            (!is_batch).then_some(kind)
        }
        _ => None,
    }
}

/// The size of the copy to the host that a wait waits for, in bytes.
fn downloaded(graph: &Graph, wait: TaskId) -> Option<u64> {
    let sources = graph.edges().iter().filter(|edge| edge.to == wait).map(|edge| edge.from);
    let mut copies = sources.filter_map(|from| graph.task(from)).filter(|task| {
        task.kind == TaskKind::HostCopy && direction(graph.name_of(task)) == Some(Direction::ToHost)
    });
    copies.find_map(|copy| copy.bytes)
}

/// What on a line causes such a wait. Returns `None` if the text does not show it, as in a library
/// function.
fn wait_cause(text: &Module, line: u32, kind: WaitKind) -> Option<WaitCause> {
    let nodes = nodes_of_line(text, line);
    let called = |names: &[&str]| -> Option<String> {
        let calls = nodes.iter().filter(|node| node.is(Kind::Call));
        let mut names_of = calls.map(|call| callee(text, *call));
        let found = names_of.find(|name| names.contains(&last_name(name)))?;
        Some(match found.rsplit_once('.') {
            Some((_, last)) => format!(".{last}()"),
            None => format!("{found}()"),
        })
    };
    let reads =
        ["item", "tolist", "cpu", "numpy", "print", "float", "int", "bool", "str", "format"];
    let logs = ["info", "debug", "warning", "write", "log", "add_scalar", "set_postfix"];
    let interpolates = || nodes.iter().any(|node| node.is(Kind::Interpolation));
    let read = || {
        let read = called(&reads).or_else(|| called(&logs)).map(WaitCause::Read);
        read.or_else(|| interpolates().then(|| WaitCause::Read("f\"…\"".to_owned())))
    };
    match kind {
        WaitKind::Scalar => read()
            .or_else(|| called(&["equal", "allclose", "isclose"]).map(WaitCause::Read))
            .or_else(|| is_condition(&nodes).then_some(WaitCause::Condition)),
        WaitKind::Few => [WaitKind::Scalar, WaitKind::Size]
            .into_iter()
            .find_map(|kind| wait_cause(text, line, kind)),
        WaitKind::Download => {
            let moves = || {
                let calls = nodes.iter().filter(|node| node.is(Kind::Call));
                let mut whole = calls.map(|call| written(text, *call));
                whole.find(|call| call.contains(".to(\"cpu\"") || call.contains(".to('cpu'"))
            };
            let arrays = || called(&["asarray", "array"]).map(WaitCause::Read);
            read()
                .or_else(arrays)
                .or_else(|| moves().map(|_| WaitCause::Read(".to(\"cpu\")".to_owned())))
        }
        WaitKind::Upload => {
            called(&["to", "cuda", "tensor", "as_tensor", "from_numpy"]).map(|_| WaitCause::Upload)
        }
        WaitKind::Size => {
            let names = [
                "nonzero",
                "masked_select",
                "argwhere",
                "where",
                "unique",
                "unique_consecutive",
                "bincount",
                "repeat_interleave",
            ];
            let is_mask = nodes.iter().any(|node| node.is(Kind::Subscript));
            called(&names).map(WaitCause::Nonzero).or_else(|| is_mask.then_some(WaitCause::Mask))
        }
        WaitKind::None => called(&["synchronize"]).map(WaitCause::Explicit),
    }
}

fn is_condition(nodes: &[Node<'_>]) -> bool {
    nodes.iter().any(|node| {
        let is_conditional = matches!(
            Kind::of(node),
            Kind::AssertStatement
                | Kind::ConditionalExpression
                | Kind::NotOperator
                | Kind::BooleanOperator
        );
        let is_statement_condition = node.parent().is_some_and(|parent| {
            let condition = parent.field(Field::Condition);
            condition.is_some_and(|condition| condition.id() == node.id())
        });
        is_conditional || is_statement_condition
    })
}

/// Whether the recording shows that a line only runs in some iterations.
fn runs_occasionally(evidence: &Evidence<'_>, at: (FileId, u32)) -> bool {
    let is_occasional = evidence.line(at.0, at.1).is_some_and(|cost| cost.calls < 0.99);
    let times = evidence.manifest().map(|manifest| manifest.observed.line_times.as_slice());
    let mut times = times.unwrap_or_default().iter();
    is_occasional
        || times.any(|one| (FileId(one.at.file), one.at.line) == at && one.ns.contains(&0))
}

/// Whether the text shows that a node only runs in some iterations, such as one in a hundred: it
/// depends on a condition that counts, or is part of validation, or all calls of its function do.
fn is_occasional_in_text(
    evidence: &Evidence<'_>,
    module: usize,
    node: Node<'_>,
    depth: u32,
) -> bool {
    let program = evidence.program;
    let text = program.module(module);
    let trains = evidence.manifest().and_then(|manifest| manifest.training_loop);
    let trains = trains.and_then(|at| evidence.current_line(FileId(at.file), at.line));
    let is_training = |one: &Node<'_>| trains == Some((module, text.line(one.start_byte())));
    let training = loops_around(node).into_iter().find(is_training);
    if is_in_validation(program, module, node)
        || conditions_around(node, training).into_iter().any(|one| counts(text, one))
    {
        return true;
    }
    let function = text.function_at(node.start_byte()).and_then(|at| text.functions.lookup(at));
    let Some(function) = function.filter(|_| training.is_none() && depth < MAX_CALL_DEPTH) else {
        return false;
    };
    let calls = callers(program, &function.name);
    let mut calls = calls.into_iter().peekable();
    calls.peek().is_some()
        && calls.all(|(at, _, call)| is_occasional_in_text(evidence, at, call, depth + 1))
}

/// Whether a condition counts iterations: a remainder, or a counter that it compares or passes on.
/// Other conditions (`rank == 0`, `x is not None`) can hold in every iteration.
fn counts(text: &Module, condition: Node<'_>) -> bool {
    within(condition).into_iter().any(|node| {
        let operator = node.field(Field::Operator).map(|operator| operator.kind());
        let is_used = node.parent().is_some_and(|parent| {
            matches!(
                Kind::of(&parent),
                Kind::ComparisonOperator | Kind::ArgumentList | Kind::NotOperator
            )
        });
        let is_name = matches!(Kind::of(&node), Kind::Identifier | Kind::Attribute);
        operator == Some("%") || (is_name && is_used && is_counter(text, node))
    })
}

/// Whether a name is a counter, incremented by the program or by the loop around it.
fn is_counter(text: &Module, node: Node<'_>) -> bool {
    let name = written(text, node);
    let is_added_to = text.assignments.iter().any(|one| {
        let step = text.text(&one.value).trim();
        one.is_augmented && one.target == name && step.parse::<u64>().is_ok()
    });
    is_added_to
        || loops_around(node).into_iter().any(|one| {
            let field = |name: Field| one.field(name);
            let over = field(Field::Right).map(|over| written(text, over)).unwrap_or_default();
            let first = field(Field::Left).map(|left| match Kind::of(&left) {
                Kind::Identifier => Some(left),
                _ => left.named_child(0),
            });
            let counts = ["enumerate(", "range("].iter().any(|it| over.contains(it));
            counts && first.flatten().is_some_and(|first| written(text, first) == name)
        })
}

#[cfg(test)]
mod tests;
