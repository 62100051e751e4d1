//! Loops of Python that one call could do the work of: what the text says of a `for`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;
use std::ops::Range;

use tree_sitter::Node;

use super::branches;
use super::parameter_loops::{changes_one_by_one, goes_over_parameters};
use ridgeline_optimize::rewrite::mend::layers::layer;
use ridgeline_optimize::rewrite::program::Program;
use ridgeline_optimize::rewrite::syntax::{
    callee, calls_in, object_of, reads, targets, within, written,
};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Module, last_name};

/// How the rounds of a loop hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// No round needs what another one made.
    Independent,
    /// The same, and each goes its own way at an `if`.
    Branching,
    /// Each round hands its state to the next through `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell`, or through
    /// an `nn.LSTM`, `nn.GRU` or `nn.RNN` that it gives a step, and what they are given besides is there
    /// before the loop, or comes from one of them before.
    Cell,
    /// Each round changes one parameter.
    Parameters,
}

/// A `for`, or a comprehension, whose rounds are of one of these kinds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loop<'a> {
    /// The text, as a place in [`Program::modules`].
    pub module: usize,
    pub node: Node<'a>,
    pub rounds: Rounds,
}

/// Statements within which no loop is followed.
const UNCLEAR: [&str; 10] = [
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

/// Calls by which a loop trains, or depends on what was computed.
const TRAINS: [&str; 8] =
    ["backward", "grad", "step", "zero_grad", "item", "next", "print", "all_reduce"];

/// Calls of NumPy and torch that draw at random, besides those that begin with `rand`: each round draws
/// for itself.
const DRAWS: [&str; 6] = ["multinomial", "bernoulli", "choice", "sample", "shuffle", "permutation"];

/// The loops of the code that runs that are of one of these kinds.
pub(crate) fn loops<'a>(program: &Program<'a>) -> Vec<Loop<'a>> {
    let mut found = Vec::new();
    for (module, text) in program.modules().iter().enumerate() {
        for one in &text.loops {
            if one.iterable.is_none() || !program.is_reached((module, one.function)) {
                continue;
            }
            if let Some((node, rounds)) = for_statement(text, &one.span)
                .and_then(|node| Some((node, rounds(program, module, node)?)))
            {
                found.push(Loop { module, node, rounds });
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
        is_independent(text, node).then_some(Loop { module, node, rounds: Rounds::Independent })
    });
    found.collect()
}

/// Whether a comprehension of one `for` and no `if` does the same in each round, with what tells the
/// rounds apart.
fn is_independent(text: &Module, node: Node<'_>) -> bool {
    let is_one = matches!(Kind::of(&node), Kind::ListComprehension | Kind::GeneratorExpression);
    let parts = if is_one { named_children(node) } else { Vec::new() };
    let [body, clause] = parts[..] else { return false };
    let field = |name: Field| clause.field(name);
    let (Some(left), Some(iterable)) = (field(Field::Left), field(Field::Right)) else {
        return false;
    };
    let turning = targets(text, left);
    let has_inner = within(body)
        .into_iter()
        .any(|one| one.kind().ends_with("comprehension") || one.is(Kind::Lambda));
    !has_inner
        && !goes_over_layers(&written(text, iterable))
        && does_the_same(text, body, iterable, &turning)
        && !reads(text, body).is_disjoint(&turning)
}

/// The `for` with these bytes.
fn for_statement<'a>(text: &'a Module, span: &Range<usize>) -> Option<Node<'a>> {
    // A loop that is all that a function does has the bytes of the function's block.
    let node = text.node(span).and_then(|node| match Kind::of(&node) {
        Kind::Block => node.named_child(0),
        _ => Some(node),
    });
    node.filter(|node| node.is(Kind::ForStatement))
}

/// The lines of the loops that run one line and nothing else, the innermost first: without that line they
/// would not be there.
pub(crate) fn heads(text: &Module, line: u32) -> Vec<u32> {
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
    /// Whether all of it is one expression.
    pub(crate) fn is_comprehension(&self) -> bool {
        !self.node.is(Kind::ForStatement)
    }

    /// The statements of a round.
    pub(crate) fn body(&self) -> Vec<Node<'a>> {
        self.node.field(Field::Body).map(named_children).unwrap_or_default()
    }

    /// The lines of a round, the first and the last.
    pub(crate) fn lines(&self, program: &Program<'_>) -> (u32, u32) {
        let text = program.module(self.module);
        let body = self.node.field(Field::Body);
        let span = body.map_or(self.node.byte_range(), |body| body.byte_range());
        (text.line(span.start), text.line(span.end.saturating_sub(1)))
    }
}

fn rounds(program: &Program<'_>, module: usize, node: Node<'_>) -> Option<Rounds> {
    let text = program.module(module);
    let field = |name: Field| node.field(name);
    let (left, iterable, body) = (field(Field::Left)?, field(Field::Right)?, field(Field::Body)?);
    if field(Field::Alternative).is_some() {
        return None;
    }
    let turning = targets(text, left);
    if goes_over_parameters(text, iterable) {
        let is_foreign = calls_in(body).into_iter().any(|call| trains_or_draws(text, call));
        let changes = !is_foreign && changes_one_by_one(text, body, &turning);
        return changes.then_some(Rounds::Parameters);
    }
    let has = |kinds: &[&str]| within(body).into_iter().any(|one| kinds.contains(&one.kind()));
    let is_layered = goes_over_layers(&written(text, iterable));
    if has(&UNCLEAR) || is_layered || !does_the_same(text, body, iterable, &turning) {
        return None;
    }
    let statements = named_children(body);
    if has(&["if_statement"]) {
        let is_one = branches::are_independent(text, &statements, &turning);
        return is_one.then_some(Rounds::Branching);
    }
    let flow = Flow::of(text, &statements)?;
    if !flow.reads.iter().any(|read| !read.is_disjoint(&turning)) {
        // Nothing tells the rounds apart.
        return None;
    }
    let carried = flow.carried();
    if carried.is_empty() {
        return Some(Rounds::Independent);
    }
    are_cells(program, module, &statements, &flow, &carried).then_some(Rounds::Cell)
}

/// Whether a loop goes over what a model consists of, each of which is another.
fn goes_over_layers(over: &str) -> bool {
    ["modules()", "children()", "parameters()", "state_dict()", "param_groups"]
        .iter()
        .any(|parts| over.contains(parts))
}

/// Whether the rounds of a loop call the same, and not in chunks.
fn does_the_same(
    text: &Module,
    body: Node<'_>,
    iterable: Node<'_>,
    turning: &BTreeSet<String>,
) -> bool {
    let is_foreign = |call: Node<'_>| {
        let name = callee(text, call);
        let kind = call.field(Field::Function).map(|function| function.kind());
        // `layer(x)`, `self.layers[i](x)`: each round is another layer.
        turning.contains(&name)
            || matches!(kind, Some("subscript" | "call"))
            || trains_or_draws(text, call)
    };
    let is_in_chunks = calls_in(iterable).into_iter().any(|call| cuts(text, call))
        || within(body).into_iter().any(|one| is_chunk(text, one));
    let is_of_records = within(body).into_iter().any(|one| is_field(text, one, turning));
    !is_in_chunks && !is_of_records && !calls_in(body).into_iter().any(is_foreign)
}

/// `target["boxes"]`: each round has a record of its own, of which nothing says that the others are alike.
fn is_field(text: &Module, node: Node<'_>, turning: &BTreeSet<String>) -> bool {
    let parts = if node.is(Kind::Subscript) { named_children(node) } else { Vec::new() };
    let [value, key] = parts[..] else { return false };
    key.is(Kind::String) && !reads(text, value).is_disjoint(turning)
}

fn trains_or_draws(text: &Module, call: Node<'_>) -> bool {
    let name = callee(text, call);
    let last = last_name(&name);
    TRAINS.contains(&last) || DRAWS.contains(&last) || last.starts_with("rand")
}

/// `x[i:i + 64]`: a slice of some width. Who works in chunks does so to save memory.
fn is_chunk(text: &Module, node: Node<'_>) -> bool {
    let ends = if node.is(Kind::Slice) { named_children(node) } else { Vec::new() };
    let [from, to, ..] = &ends[..] else { return false };
    let is_number = |node: &Node<'_>| node.is(Kind::Integer);
    let is_one_wide = || written(text, *to) == format!("{}+1", written(text, *from));
    let is_fixed = is_number(from) && is_number(to);
    !is_fixed && !is_one_wide()
}

/// `x.split(64)`, `x.chunk(8)`
fn cuts(text: &Module, call: Node<'_>) -> bool {
    let whole = written(text, call);
    let name = callee(text, call);
    matches!(last_name(&name), "split" | "chunk" | "tensor_split")
        && !["split(1)", "split(1,"].iter().any(|one| whole.contains(one))
}

/// What each statement of a round reads and gives a value.
struct Flow {
    reads: Vec<BTreeSet<String>>,
    writes: Vec<BTreeSet<String>>,
}

impl Flow {
    /// Nothing where a statement may do something else, or where what is collected is looked at.
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

    /// What a round reads that the round before gave a value.
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

/// What a statement reads, gives a value, and collects into.
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

/// Whether all that is carried is what cells give, each of which takes what it gave in the round before as
/// it is, and besides nothing that hangs on the round before: cells one on the other as well.
fn are_cells(
    program: &Program<'_>,
    module: usize,
    statements: &[Node<'_>],
    flow: &Flow,
    carried: &Names,
) -> bool {
    let text = program.module(module);
    // What hangs on the round before.
    let mut tainted = carried.clone();
    for ((statement, read), gives) in statements.iter().zip(&flow.reads).zip(&flow.writes) {
        if gives.is_disjoint(carried) {
            if !read.is_disjoint(&tainted) {
                tainted.extend(gives.iter().cloned());
            }
            continue;
        }
        let value = statement.named_child(0).and_then(|one| one.field(Field::Right));
        let Some(call) = value.filter(|value| value.is(Kind::Call)) else { return false };
        let given = call.field(Field::Arguments).map(named_children).unwrap_or_default();
        let [input, state] = &given[..] else { return false };
        let is_cell = made_by(program, module, &callee(text, call)).is_some_and(|layer| {
            ["LSTMCell", "GRUCell", "RNNCell", "LSTM", "GRU", "RNN"].contains(&layer.as_str())
        });
        let is_its_own = is_plain(*state) && reads(text, *state).is_subset(gives);
        if !is_cell || !is_its_own || !reads(text, *input).is_disjoint(&tainted) {
            return false;
        }
        // All of it is there once this cell has gone through its steps.
        tainted.retain(|name| !gives.contains(name));
    }
    true
}

/// `h`, `self.h`, `(h, c)`: a state as a cell gave it. `h * mask` begins anew somewhere.
fn is_plain(state: Node<'_>) -> bool {
    match Kind::of(&state) {
        Kind::Identifier => true,
        Kind::Attribute => state.field(Field::Object).is_some_and(is_plain),
        Kind::Tuple => named_children(state).into_iter().all(is_plain),
        _ => false,
    }
}

/// The layer of PyTorch's that a variable holds: `GRUCell`.
fn made_by(program: &Program<'_>, module: usize, variable: &str) -> Option<String> {
    let text = program.module(module);
    let made = text.assignments.iter().filter(|one| one.target == variable);
    let mut layers = made.map(|one| layer(program, module, text.node(&one.value)?));
    let first = layers.next()??;
    layers.all(|other| other.as_deref() == Some(&first)).then_some(first)
}

#[cfg(test)]
mod tests;
