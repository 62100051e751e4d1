//! Loops that call a model for a single sample or time step where one call could take all of them.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeSet, HashSet};

use tree_sitter::Node;

use super::evidence::Evidence;
use super::host_spans::HostSpans;
use super::line_sums::Line;
use super::loop_cost::{LoopCost, Replacement, is_alike, lines, saved_ns, trips};
use super::loops::{self, Loop};
use super::source_queries::{iterates_over_validation, loops_around};
use ridgeline_graph::graph::TaskId;
use ridgeline_optimize::rewrite::fixes::validation::trains;
use ridgeline_optimize::rewrite::models::{Models, body_of};
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{
    callee, calls_in, mentions, object_of, reads, targets, within, written,
};
use ridgeline_profile::Phase;
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Function, Module, last_name};

/// PyTorch modules that keep no state between calls and treat each sample of a batch independently.
/// Batch norm does neither.
const STATELESS_LAYERS: &[&str] = &[
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "Bilinear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "ELU",
    "Embedding",
    "Flatten",
    "GELU",
    "GRU",
    "GroupNorm",
    "Hardswish",
    "Identity",
    "LSTM",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "Mish",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "PReLU",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "TransformerEncoder",
    "TransformerEncoderLayer",
];

/// Endings of words in the names of data streams, which give one sample after another and are not
/// available as a whole.
const STREAM_SUFFIXES: [&str; 6] = ["loader", "data", "set", "iter", "iterator", "stream"];

/// Methods that modify a container in an attribute.
const MUTATING_METHODS: [&str; 7] =
    ["append", "extend", "insert", "pop", "popleft", "update", "add"];

/// The maximum number of base classes followed from one to the next.
const MAX_DEPTH: u32 = 8;

/// Tensor methods whose result contains the same samples.
const SAME_SAMPLES: [&str; 6] = ["to", "cuda", "float", "half", "contiguous", "detach"];

/// Returns the cost of a loop with at least `min_trips` iterations per execution, each of which
/// calls a model for one sample. Returns `None` if an iteration may depend on another one, if the
/// iterations differ, or if the same lines are also called elsewhere.
pub(crate) fn loop_cost(
    evidence: &Evidence<'_>,
    one: &Loop<'_>,
    min_trips: f64,
) -> Option<LoopCost> {
    let (at, trips) = trips(evidence, one).filter(|(_, trips)| *trips >= min_trips)?;
    if !calls_a_model(evidence.program, one) {
        return None;
    }
    let text = evidence.program.module(one.module);
    let own: BTreeSet<Line> = lines(evidence, one).into_iter().chain([at]).collect();
    let today = (one.module, text.line(one.node.start_byte()));
    let host_spans = HostSpans::new(evidence, at, today, |line| own.contains(&line));
    let inside: HashSet<TaskId> = host_spans.tasks().collect();
    let graph = evidence.graph();
    let tasks = || inside.iter().filter_map(|id| graph.task(*id));
    let lines: BTreeSet<Line> = tasks().filter_map(|task| task.line).chain(own).collect();
    let runs_elsewhere = graph.iter().any(|(id, task)| {
        task.kind.is_host()
            && matches!(task.phase, Phase::Forward | Phase::Other)
            && task.line.is_some_and(|line| lines.contains(&line))
            && !inside.contains(&id)
    });
    let modules: BTreeSet<u32> = tasks().filter_map(|task| task.module).collect();
    let is_candidate = !runs_elsewhere
        && tasks().all(|task| task.phase != Phase::Data)
        && !modules.is_empty()
        && modules.into_iter().all(|module| is_stateless(evidence, module))
        && is_alike(evidence, &lines, trips);
    is_candidate.then(|| LoopCost {
        at,
        trips,
        saved_ns: saved_ns(evidence, &lines, trips, Replacement::OneCall),
        lines,
    })
}

/// Whether a module and the modules that contain it treat each sample independently and keep no
/// state between calls.
fn is_stateless(evidence: &Evidence<'_>, module: u32) -> bool {
    let modules = &evidence.profile().modules;
    let one = |at: u32| modules.get(at as usize);
    let around = std::iter::successors(one(module), |module| one(module.parent?.0)).take(64);
    let mut names = around.map(|module| module.type_name.as_str());
    names.all(|name| is_stateless_class(evidence.program, name, 0))
}

/// Whether this holds for a class, by its name.
fn is_stateless_class(program: &Program<'_>, name: &str, depth: u32) -> bool {
    if STATELESS_LAYERS.contains(&name) || name == "Module" {
        return true;
    }
    let texts = program.modules().iter().enumerate();
    let mut classes = texts.filter_map(|(at, text)| Some((at, text.class(name)?))).peekable();
    depth < MAX_DEPTH
        && classes.peek().is_some()
        && classes.all(|(at, class)| {
            let text = program.module(at);
            let bases = text.classes.lookup(class).map(|one| one.bases.as_slice());
            let mut bases = bases.unwrap_or_default().iter();
            let methods = text.functions.iter().enumerate();
            let mut later =
                methods.filter(|(_, one)| one.class == Some(class) && one.name != "__init__");
            bases.all(|base| is_stateless_class(program, last_name(text.text(base)), depth + 1))
                && later.all(|(at, method)| {
                    !modifies_self(text, at)
                        && !uses_batch_dimension(text, method)
                        && !branches_on_input(text, method)
                })
        })
}

/// Whether a method modifies its object.
fn modifies_self(text: &Module, method: usize) -> bool {
    let mut set = text.assignments.iter().filter(|one| one.function == Some(method));
    let mut called = text.calls.iter().filter(|one| one.function == Some(method));
    set.any(|one| one.target.starts_with("self."))
        || called.any(|call| {
            let name = call.name();
            call.callee.starts_with("self.")
                && (MUTATING_METHODS.contains(&name) || name.ends_with('_'))
        })
}

/// Whether a method mentions the batch dimension other than to read its size: it may combine
/// samples, or rely on a batch of one.
fn uses_batch_dimension(text: &Module, method: &Function) -> bool {
    let body: String = text.text(&method.body).chars().filter(|c| !c.is_whitespace()).collect();
    let body = body.replace(".size(0)", "");
    ["(0)", "(0,", ",0)", "dim=0", "axis=0"].iter().any(|part| body.contains(part))
}

/// Whether a method branches on its arguments, as a network with early exit does: samples may take
/// different branches.
fn branches_on_input(text: &Module, method: &Function) -> bool {
    let Some(body) = text.node(&method.body) else { return true };
    within(body).into_iter().any(|one| {
        let condition = match Kind::of(&one) {
            Kind::IfStatement | Kind::ElifClause | Kind::WhileStatement => {
                one.field(Field::Condition)
            }
            Kind::ConditionalExpression => one.named_child(1),
            _ => None,
        };
        condition.is_some_and(|condition| {
            let is_own = reads(text, condition).iter().all(|name| name.starts_with("self."));
            !is_own && !mentions(text.text(&condition.byte_range()), "None")
        })
    })
}

/// Whether each iteration calls a model for one sample of data that is available as a whole, and no
/// other function of the program.
fn calls_a_model(program: &Program<'_>, one: &Loop<'_>) -> bool {
    let is_open = matches!(one.kind, loops::LoopKind::Independent | loops::LoopKind::Branching);
    let field = |name: Field| one.node.field(name);
    let (Some(left), Some(over), Some(body)) =
        (field(Field::Left), field(Field::Right), field(Field::Body))
    else {
        return false;
    };
    let text = program.module(one.module);
    let around = loops_around(one.node);
    let is_data = |it: &Node<'_>| {
        trains(program, one.module, *it) || iterates_over_validation(program, one.module, *it)
    };
    if !is_open || !around.iter().all(is_data) || !is_available(text, &around, over, body) {
        return false;
    }
    let models = Models::of(program);
    let loop_variables = targets(text, left);
    let assigned = text.assignments.iter().filter(|one| body.byte_range().contains(&one.at.start));
    let assigned_names: BTreeSet<String> = assigned.map(|one| one.target.clone()).collect();
    let mut calls = 0;
    let is_known = |call: Node<'_>| {
        if !models.is_one(&callee(text, call)) {
            return body_of(program, one.module, call).is_none();
        }
        calls += 1;
        let given = call.field(Field::Arguments).map(named_children).unwrap_or_default();
        let is_sample = |given: &Node<'_>| is_one_sample(text, *given, body, &loop_variables);
        // The index of the iteration may change what the model does.
        let is_same = |given: &Node<'_>| {
            let read = reads(text, *given);
            read.is_disjoint(&loop_variables) && read.is_disjoint(&assigned_names)
        };
        given.first().is_some_and(is_sample)
            && given.iter().all(|given| is_sample(given) || is_same(given))
    };
    calls_in(body).into_iter().all(is_known) && calls > 0
}

/// Whether the data that a loop iterates over is available as a whole. The batch of an outer loop
/// is; what a loader or a dataset gives is not.
fn is_available(text: &Module, around: &[Node<'_>], over: Node<'_>, body: Node<'_>) -> bool {
    let batch_variables = around.iter().filter_map(|one| one.field(Field::Left));
    let batch_variables: BTreeSet<String> =
        batch_variables.flat_map(|left| targets(text, left)).collect();
    let is_stream = |name: &String| {
        let name = name.to_lowercase();
        name.split(['_', '.']).any(|word| STREAM_SUFFIXES.iter().any(|end| word.ends_with(end)))
    };
    let known = ["range", "enumerate", "zip", "len", "size"];
    let mut names = reads(text, over).into_iter().chain(reads(text, body));
    calls_in(over).into_iter().all(|call| known.contains(&last_name(&callee(text, call))))
        && !names.any(|name| !batch_variables.contains(&name) && is_stream(&name))
}

/// Whether a value is one sample with an explicit batch dimension, or one time step:
/// `x.unsqueeze(0)`, `x[None]`, `x[i:i + 1]`, `x[:, t]`.
fn is_one_sample(
    text: &Module,
    value: Node<'_>,
    body: Node<'_>,
    loop_variables: &BTreeSet<String>,
) -> bool {
    let uses_loop_variable = |node: Node<'_>| !reads(text, node).is_disjoint(loop_variables);
    match Kind::of(&value) {
        Kind::Identifier => {
            let name = written(text, value);
            let mut assignments = text
                .assignments
                .iter()
                .filter(|one| one.target == name && body.byte_range().contains(&one.at.start));
            assignments.next().and_then(|one| text.node(&one.value)).is_some_and(|value| {
                !value.is(Kind::Identifier) && is_one_sample(text, value, body, loop_variables)
            })
        }
        Kind::Call => {
            let name = callee(text, value);
            let arguments = value.field(Field::Arguments).map(named_children);
            let arguments = arguments.unwrap_or_default();
            if last_name(&name) == "unsqueeze" {
                let first = arguments.last().map(|last| written(text, *last));
                return uses_loop_variable(value)
                    && first.is_some_and(|first| matches!(first.as_str(), "0" | "dim=0"));
            }
            let same = SAME_SAMPLES.iter().find_map(|method| object_of(text, value, method));
            same.is_some_and(|same| is_one_sample(text, same, body, loop_variables))
        }
        Kind::Subscript => {
            let places: Vec<Node<'_>> = named_children(value).into_iter().skip(1).collect();
            let has = |kind: &str| places.iter().any(|one| one.kind() == kind);
            let is_slice_of_one =
                places.iter().any(|one| one.is(Kind::Slice) && uses_loop_variable(*one));
            let is_whole = |one: &Node<'_>| one.is(Kind::Slice) && one.named_child_count() == 0;
            let is_step =
                places.iter().any(is_whole) && places.iter().any(|one| uses_loop_variable(*one));
            uses_loop_variable(value) && (has("none") || is_slice_of_one || is_step)
        }
        _ => false,
    }
}
