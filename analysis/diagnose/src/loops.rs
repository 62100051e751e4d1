//! Python loops that a single call could replace, by the text of a `for`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;
use std::ops::Range;

use tree_sitter::Node;

use super::branches;
use super::element_loops::reads_elements;
use super::parameter_loops::{iterates_over_parameters, updates_each_parameter};
use ridgeline_optimize::rewrite::fixes::layers::layer;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{
    callee, calls_in, object_of, reads, targets, within, written,
};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};

/// How the iterations of a loop depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    /// No iteration needs a value from another one.
    Independent,
    /// Independent, but iterations may take different branches of an `if`.
    Branching,
    /// Each iteration passes its state to the next through `nn.LSTMCell`, `nn.GRUCell` or
    /// `nn.RNNCell`, or through an `nn.LSTM`, `nn.GRU` or `nn.RNN` that gets a single step. Their
    /// other inputs exist before the loop, or come from an earlier cell.
    Cell,
    /// Each iteration changes one parameter.
    Parameters,
    /// Each iteration reads elements of tensors with `.item()`.
    Elements,
}

/// A `for` loop or a comprehension of one of these kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop<'a> {
    /// The module's index in [`Program::modules`].
    pub module: usize,
    pub node: Node<'a>,
    pub kind: LoopKind,
}

/// A loop that contains one of these is not analyzed.
pub(super) const UNSUPPORTED: [&str; 10] = [
    "for_statement",
    "while_statement",
    "try_statement",
    "with_statement",
    "match_statement",
    "return_statement",
    "break_statement",
    "yield",
    "await",
    "named_expression",
];

/// Calls by which a loop trains, or depends on computed values.
const TRAINING_CALLS: [&str; 8] =
    ["backward", "grad", "step", "zero_grad", "item", "next", "print", "all_reduce"];

/// Random functions of NumPy and torch, besides those that begin with `rand`: each iteration draws
/// its own values.
const RANDOM_CALLS: [&str; 6] =
    ["multinomial", "bernoulli", "choice", "sample", "shuffle", "permutation"];

/// Returns the loops of these kinds. A recording shows which of them ran: a program may call a
/// function by a name that it computes.
pub(crate) fn loops<'a>(program: &Program<'a>) -> Vec<Loop<'a>> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.loops {
            if one.iterable.is_none() {
                continue;
            }
            if let Some((node, kind)) = for_statement(text, &one.span).and_then(|node| {
                let is_element = || reads_elements(text, node).then_some(LoopKind::Elements);
                Some((node, kind(program, module, node).or_else(is_element)?))
            }) {
                found.push(Loop { module, node, kind });
            }
        }
    }
    found.extend(comprehensions(program));
    found
}

/// `torch.stack([self.lin(x[:, t]) for t in range(9)])`
fn comprehensions<'a>(program: &Program<'a>) -> Vec<Loop<'a>> {
    let joined = program.calls().filter(|(module, call)| {
        let whole = program.called(*module, call);
        let joins = ["torch.stack", "torch.cat", "torch.concat", "torch.hstack", "torch.vstack"];
        joins.contains(&whole.as_str()) || whole == "sum"
    });
    let found = joined.filter_map(|(module, call)| {
        let list = program.node(module, call)?.field(Field::Arguments)?;
        let node = match Kind::of(&list) {
            Kind::GeneratorExpression => list,
            _ => list.named_child(0)?,
        };
        let text = program.module(module);
        is_independent(text, node).then_some(Loop { module, node, kind: LoopKind::Independent })
    });
    found.collect()
}

/// Whether a comprehension of one `for` and no `if` does the same in each iteration and depends on
/// its loop variables.
fn is_independent(text: &Module, node: Node<'_>) -> bool {
    let is_one = matches!(Kind::of(&node), Kind::ListComprehension | Kind::GeneratorExpression);
    let parts = if is_one { named_children(node) } else { Vec::new() };
    let [body, clause] = parts[..] else { return false };
    let field = |name: Field| clause.field(name);
    let (Some(left), Some(iterable)) = (field(Field::Left), field(Field::Right)) else {
        return false;
    };
    let loop_variables = targets(text, left);
    let has_inner = within(body)
        .into_iter()
        .any(|one| one.kind().ends_with("comprehension") || one.is(Kind::Lambda));
    !has_inner
        && !iterates_over_layers(&written(text, iterable))
        && iterations_are_alike(text, body, iterable, &loop_variables)
        && !reads(text, body).is_disjoint(&loop_variables)
}

/// The `for` statement with this byte range.
fn for_statement<'a>(text: &'a Module, span: &Range<usize>) -> Option<Node<'a>> {
    // If a loop is the whole body of a function, its span is also that of the function's block.
    let node = text.node(span).and_then(|node| match Kind::of(&node) {
        Kind::Block => node.named_child(0),
        _ => Some(node),
    });
    node.filter(|node| node.is(Kind::ForStatement))
}

/// The lines of the loops whose body is only this line, innermost first: without that line these
/// loops would not exist.
pub(crate) fn loop_headers(text: &Module, line: u32) -> Vec<u32> {
    let loops = || text.loops.iter().filter_map(|one| for_statement(text, &one.span));
    let mut found = Vec::new();
    let mut at = line;
    while let Some(head) = loops().find_map(|node| {
        let body = named_children(node.field(Field::Body)?);
        let [only] = &body[..] else { return None };
        let head = text.line(node.start_byte());
        (text.line(only.start_byte()) == at && head < at).then_some(head)
    }) {
        found.push(head);
        at = head;
    }
    found
}

impl<'a> Loop<'a> {
    /// Whether it is a comprehension rather than a `for` statement.
    pub(crate) fn is_comprehension(&self) -> bool {
        !self.node.is(Kind::ForStatement)
    }

    /// The statements of the loop body.
    pub(crate) fn body(&self) -> Vec<Node<'a>> {
        self.node.field(Field::Body).map(named_children).unwrap_or_default()
    }

    /// The first and the last line of the loop body.
    pub(crate) fn lines(&self, program: &Program<'_>) -> (u32, u32) {
        let text = program.module(self.module);
        let body = self.node.field(Field::Body);
        let span = body.map_or(self.node.byte_range(), |body| body.byte_range());
        (text.line(span.start), text.line(span.end.saturating_sub(1)))
    }
}

fn kind(program: &Program<'_>, module: usize, node: Node<'_>) -> Option<LoopKind> {
    let text = program.module(module);
    let field = |name: Field| node.field(name);
    let (left, iterable, body) = (field(Field::Left)?, field(Field::Right)?, field(Field::Body)?);
    if field(Field::Alternative).is_some() {
        return None;
    }
    let loop_variables = targets(text, left);
    if iterates_over_parameters(text, iterable) {
        let is_excluded = calls_in(body).into_iter().any(|call| trains_or_draws(text, call));
        let changes = !is_excluded && updates_each_parameter(text, body, &loop_variables);
        return changes.then_some(LoopKind::Parameters);
    }
    let has = |kinds: &[&str]| within(body).into_iter().any(|one| kinds.contains(&one.kind()));
    let is_layered = iterates_over_layers(&written(text, iterable));
    if has(&UNSUPPORTED)
        || is_layered
        || !iterations_are_alike(text, body, iterable, &loop_variables)
    {
        return None;
    }
    let statements = named_children(body);
    if has(&["if_statement"]) {
        let is_one = branches::are_independent(text, &statements, &loop_variables);
        return is_one.then_some(LoopKind::Branching);
    }
    let flow = Flow::of(text, &statements)?;
    if !flow.reads.iter().any(|read| !read.is_disjoint(&loop_variables)) {
        // The iterations do not differ.
        return None;
    }
    let carried = flow.carried();
    if carried.is_empty() {
        return Some(LoopKind::Independent);
    }
    are_cells(program, module, &statements, &flow, &carried).then_some(LoopKind::Cell)
}

/// Whether a loop iterates over the parts of a model, each of which is different.
fn iterates_over_layers(over: &str) -> bool {
    ["modules()", "children()", "parameters()", "state_dict()", "param_groups"]
        .iter()
        .any(|parts| over.contains(parts))
}

/// Whether the iterations of a loop make the same calls, and do not process chunks.
fn iterations_are_alike(
    text: &Module,
    body: Node<'_>,
    iterable: Node<'_>,
    loop_variables: &BTreeSet<String>,
) -> bool {
    let is_excluded = |call: Node<'_>| {
        let name = callee(text, call);
        let kind = call.field(Field::Function).map(|function| function.kind());
        // `layer(x)`, `self.layers[i](x)`: each iteration calls another layer.
        loop_variables.contains(&name)
            || matches!(kind, Some("subscript" | "call"))
            || trains_or_draws(text, call)
    };
    let has_chunks = calls_in(iterable).into_iter().any(|call| splits(text, call))
        || within(body).into_iter().any(|one| is_chunk(text, one));
    let has_records = within(body).into_iter().any(|one| is_field(text, one, loop_variables));
    !has_chunks && !has_records && !calls_in(body).into_iter().any(is_excluded)
}

/// `target["boxes"]`: each iteration has its own record, and the records may differ in shape.
fn is_field(text: &Module, node: Node<'_>, loop_variables: &BTreeSet<String>) -> bool {
    let parts = if node.is(Kind::Subscript) { named_children(node) } else { Vec::new() };
    let [value, key] = parts[..] else { return false };
    key.is(Kind::String) && !reads(text, value).is_disjoint(loop_variables)
}

pub(super) fn trains_or_draws(text: &Module, call: Node<'_>) -> bool {
    let name = callee(text, call);
    let last = last_name(&name);
    TRAINING_CALLS.contains(&last) || RANDOM_CALLS.contains(&last) || last.starts_with("rand")
}

/// `x[i:i + 64]`: a slice of more than one element. Code that processes chunks does so to save
/// memory.
fn is_chunk(text: &Module, node: Node<'_>) -> bool {
    let ends = if node.is(Kind::Slice) { named_children(node) } else { Vec::new() };
    let [from, to, ..] = &ends[..] else { return false };
    let is_number = |node: &Node<'_>| node.is(Kind::Integer);
    let is_one_wide = || written(text, *to) == format!("{}+1", written(text, *from));
    let is_fixed = is_number(from) && is_number(to);
    !is_fixed && !is_one_wide()
}

/// `x.split(64)`, `x.chunk(8)`
fn splits(text: &Module, call: Node<'_>) -> bool {
    let whole = written(text, call);
    let name = callee(text, call);
    matches!(last_name(&name), "split" | "chunk" | "tensor_split")
        && !["split(1)", "split(1,"].iter().any(|one| whole.contains(one))
}

/// The names that each statement of the loop body reads and assigns.
struct Flow {
    reads: Vec<BTreeSet<String>>,
    writes: Vec<BTreeSet<String>>,
}

impl Flow {
    /// Returns `None` if a statement may have other effects, or if the body reads a collection that
    /// it fills.
    fn of(text: &Module, statements: &[Node<'_>]) -> Option<Flow> {
        let mut flow = Flow { reads: Vec::new(), writes: Vec::new() };
        let mut collected: BTreeSet<String> = BTreeSet::new();
        for statement in statements {
            let inner =
                statement.named_child(0).filter(|_| statement.is(Kind::ExpressionStatement))?;
            let (read, written, into) = step(text, inner)?;
            flow.reads.push(read);
            flow.writes.push(written);
            collected.extend(into);
        }
        let mut all = flow.reads.iter().chain(&flow.writes);
        all.all(|names| names.is_disjoint(&collected)).then_some(flow)
    }

    /// The names whose values an iteration reads from the previous one.
    fn carried(&self) -> BTreeSet<String> {
        let all: BTreeSet<&String> = self.writes.iter().flatten().collect();
        let mut given: BTreeSet<&String> = BTreeSet::new();
        let mut carried = BTreeSet::new();
        for (read, written) in self.reads.iter().zip(&self.writes) {
            let open = read.iter().filter(|name| all.contains(name) && !given.contains(name));
            carried.extend(open.cloned());
            given.extend(written);
        }
        carried
    }
}

type Names = BTreeSet<String>;

/// The names that a statement reads, assigns, and collects into.
pub(super) fn step(text: &Module, inner: Node<'_>) -> Option<(Names, Names, Names)> {
    let field = |name: Field| inner.field(name);
    match Kind::of(&inner) {
        Kind::Assignment => {
            let (left, right) = (field(Field::Left)?, field(Field::Right)?);
            if left.is(Kind::Subscript) {
                return collected(text, left, right);
            }
            // `total = total + part`
            let name = written(text, left);
            if right.is(Kind::BinaryOperator) && left.is(Kind::Identifier) {
                let part = |name: Field| right.field(name);
                let (one, other) = (part(Field::Left)?, part(Field::Right)?);
                let is_sum = part(Field::Operator).is_some_and(|it| it.kind() == "+");
                if is_sum && written(text, one) == name && !reads(text, other).contains(&name) {
                    return Some((reads(text, other), Names::new(), Names::from([name])));
                }
            }
            Some((reads(text, right), targets(text, left), Names::new()))
        }
        Kind::AugmentedAssignment => {
            let (left, right) = (field(Field::Left)?, field(Field::Right)?);
            let is_sum = field(Field::Operator).is_some_and(|it| it.kind() == "+=");
            match Kind::of(&left) {
                _ if !is_sum => None,
                Kind::Subscript => collected(text, left, right),
                _ => Some((reads(text, right), Names::new(), targets(text, left))),
            }
        }
        Kind::Call => {
            let list = object_of(text, inner, "append")?;
            let arguments = field(Field::Arguments)?;
            Some((reads(text, arguments), Names::new(), targets(text, list)))
        }
        _ => None,
    }
}

/// `outputs[:, t] = step`
fn collected(text: &Module, left: Node<'_>, right: Node<'_>) -> Option<(Names, Names, Names)> {
    let base = left.field(Field::Value)?;
    let mut read = reads(text, right);
    for index in named_children(left).into_iter().filter(|one| *one != base) {
        read.extend(reads(text, index));
    }
    Some((read, Names::new(), targets(text, base)))
}

/// Whether all values carried to the next iteration come from recurrent cells. Each cell must take
/// its previous output unchanged, and no other input that depends on the previous iteration.
/// Stacked cells are accepted.
fn are_cells(
    program: &Program<'_>,
    module: usize,
    statements: &[Node<'_>],
    flow: &Flow,
    carried: &Names,
) -> bool {
    let text = program.module(module);
    // Names that depend on the previous iteration.
    let mut tainted = carried.clone();
    for ((statement, read), outputs) in statements.iter().zip(&flow.reads).zip(&flow.writes) {
        if outputs.is_disjoint(carried) {
            if !read.is_disjoint(&tainted) {
                tainted.extend(outputs.iter().cloned());
            }
            continue;
        }
        let value = statement.named_child(0).and_then(|one| one.field(Field::Right));
        let Some(call) = value.filter(|value| value.is(Kind::Call)) else { return false };
        let given = call.field(Field::Arguments).map(named_children).unwrap_or_default();
        let [input, state] = &given[..] else { return false };
        let is_cell = layer_of(program, module, &callee(text, call)).is_some_and(|layer| {
            ["LSTMCell", "GRUCell", "RNNCell", "LSTM", "GRU", "RNN"].contains(&layer.as_str())
        });
        let is_own_state = is_plain_state(*state) && reads(text, *state).is_subset(outputs);
        if !is_cell || !is_own_state || !reads(text, *input).is_disjoint(&tainted) {
            return false;
        }
        // All outputs of this cell are available once it has run all its steps.
        tainted.retain(|name| !outputs.contains(name));
    }
    true
}

/// `h`, `self.h`, `(h, c)`: a state as a cell returned it. `h * mask` resets it at some steps.
fn is_plain_state(state: Node<'_>) -> bool {
    match Kind::of(&state) {
        Kind::Identifier => true,
        Kind::Attribute => state.field(Field::Object).is_some_and(is_plain_state),
        Kind::Tuple => named_children(state).into_iter().all(is_plain_state),
        _ => false,
    }
}

/// The PyTorch layer that a variable holds: `GRUCell`.
fn layer_of(program: &Program<'_>, module: usize, variable: &str) -> Option<String> {
    let text = program.module(module);
    let assignments = text.assignments.iter().filter(|one| one.target == variable);
    let mut layers = assignments.map(|one| layer(program, module, text.node(&one.value)?));
    let first = layers.next()??;
    layers.all(|other| other.as_deref() == Some(&first)).then_some(first)
}

#[cfg(test)]
mod tests;
