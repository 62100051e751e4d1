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
mod tests {
    use super::*;
    use crate::harness::with_program;

    /// The kinds of the loops of a function's body.
    #[track_caller]
    fn check(body: &str, expected: &[Rounds]) {
        let body = body.replace('\n', "\n        ");
        let text = format!(
            "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        \
             self.cell = nn.GRUCell(8, 8)\n        self.one = nn.LSTMCell(8, 8)\n        self.two = nn.LSTMCell(8, 8)\n        self.lstm = nn.LSTM(8, 8)\n        self.lin = nn.Linear(8, 8)\n    def forward(self, x, h):\n        {body}\n\nNet()(1, 2)\n"
        );
        let found = with_program(&text, |program| {
            loops(program).iter().map(|one| one.rounds).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn rounds_that_need_nothing_of_one_another() {
        let expected = &[Rounds::Independent];
        check(
            "out = []\nfor t in range(9):\n    y = self.lin(x[:, t])\n    out.append(y.relu())",
            expected,
        );
        check("for t in range(9):\n    out[:, t] = self.lin(x[:, t])", expected);
        check("total = 0\nfor row in x:\n    total = total + (row * row).sum()", expected);
        check("for i, row in enumerate(x):\n    total += torch.dot(row, h[i])", expected);
    }

    #[test]
    fn a_cell_whose_inputs_are_all_there() {
        let body = "out = []\nfor t in range(9):\n    h = self.cell(x[:, t], h)\n    out.append(h)";
        check(body, &[Rounds::Cell]);
        // The next input is the last output: nothing can be done at once.
        check("for t in range(9):\n    h = self.cell(h, h)\n    out.append(x[t])", &[]);
        check("for t in range(9):\n    y = self.lin(h) + x[t]\n    h = self.cell(y, h)", &[]);
        // The state is changed in between, or the step is the program's own.
        check("for t in range(9):\n    h = self.cell(x[t], h)\n    h = self.lin(h)", &[]);
        check("for t in range(9):\n    h = torch.tanh(self.lin(h) + x[t])", &[]);
        // Where an episode ends the state begins anew.
        check("for t in range(9):\n    h = self.cell(x[t], h * mask[t])", &[]);
        check("for t in range(9):\n    h = self.cell(x[t])\n    out.append(g)\n    g = h", &[]);
    }

    #[test]
    fn cells_one_on_the_other() {
        let stacked = "for t in range(9):\n    h, c = self.one(x[:, t], (h, c))\n    g, d = self.two(h, (g, d))\n    out.append(self.lin(g))";
        check(stacked, &[Rounds::Cell]);
        let between = "for t in range(9):\n    h, c = self.one(x[:, t], (h, c))\n    y = self.lin(h).relu()\n    g, d = self.two(y, (g, d))";
        check(between, &[Rounds::Cell]);
        // The lower one is given what the upper one gave a step before.
        let back = "for t in range(9):\n    h, c = self.one(x[:, t] + g, (h, c))\n    g, d = self.two(h, (g, d))";
        check(back, &[]);
        // Each takes the other's state.
        let crossed = "for t in range(9):\n    h, c = self.one(x[:, t], (g, d))\n    g, d = self.two(x[:, t], (h, c))";
        check(crossed, &[]);
    }

    #[test]
    fn a_whole_layer_that_is_given_step_by_step() {
        let body = "for t in range(9):\n    y, h = self.lstm(x[:, t:t + 1], h)\n    out.append(y)";
        check(body, &[Rounds::Cell]);
        // Truncated: the graph is cut between chunks.
        let body = "for t in range(0, 90, 30):\n    y, h = self.lstm(x[:, t:t + 30], h)\n    out.append(y)";
        check(body, &[]);
    }

    #[test]
    fn comprehensions_that_are_joined() {
        let expected = &[Rounds::Independent];
        check("y = torch.stack([self.lin(x[:, t]).relu() for t in range(9)], dim=1)", expected);
        check("y = torch.cat([self.lin(row) for row in x])", expected);
        check("y = sum(torch.dot(row, h) for row in x)", expected);
        check("y = torch.cat([layer(x) for layer in self.layers])", &[]);
        check("y = torch.cat([self.heads[i](x) for i in range(9)])", &[]);
        check("y = torch.cat([self.lin(x[i:i + 9]) for i in range(0, 99, 9)])", &[]);
        check("y = torch.cat([self.lin(x[i]) for i in range(9) if i > 3])", &[]);
        check("y = torch.stack([self.lin(x) for _ in range(9)])", &[]);
        check("y = torch.cat([p.flatten() for p in self.parameters()])", &[]);
        check("y = [self.lin(row) for row in x]", &[]);
    }

    #[test]
    fn chunks_and_draws_are_on_purpose() {
        check("for i in range(0, 99, 9):\n    out.append(self.lin(x[i:i + 9]) @ h)", &[]);
        check("for i in range(8):\n    total = total + self.lin(x[i * 9:(i + 1) * 9]).sum()", &[]);
        check("for part in x.split(9):\n    out.append(self.lin(part))", &[]);
        check("for part in torch.chunk(x, 9):\n    out.append(self.lin(part))", &[]);
        check("for i in range(9):\n    out.append(x[i, torch.randperm(9)[:4]])", &[]);
        check(
            "for row in x.split(1, dim=1):\n    out.append(self.lin(row))",
            &[Rounds::Independent],
        );
        check("for i in range(9):\n    out.append(self.lin(x[i, 2:5]))", &[Rounds::Independent]);
    }

    #[test]
    fn loops_over_layers_and_loops_that_train_are_left_alone() {
        check("for layer in self.layers:\n    x = layer(x)", &[]);
        check("for i in range(9):\n    out.append(self.layers[i](x))", &[]);
        check("for i in range(9):\n    out.append(getattr(self, f'l{i}')(x[i]))", &[]);
        check("for b in x:\n    loss = self.lin(b).sum()\n    loss.backward()", &[]);
        check("for _ in range(9):\n    out.append(self.lin(x))", &[]);
        check("for t in range(9):\n    out.append(x[t] + out[-1])", &[]);
        check("for t in range(9):\n    out.append(torch.autograd.grad(x[t], h))", &[]);
        check("for m in self.modules():\n    total += m.weight.sum()", &[]);
    }

    #[test]
    fn rounds_that_branch() {
        let expected = &[Rounds::Branching];
        check("for t in range(9):\n    if t > 3:\n        out.append(self.lin(x[t]))", expected);
        check(
            "for t in range(9):\n    y = x[t]\n    if flag:\n        y = y * 2\n    out.append(y)",
            expected,
        );
        check(
            "for row in x:\n    if row.sum() > 0:\n        total += row.mean()\n    else:\n        total += row.norm()",
            expected,
        );
        check(
            "for i in range(9):\n    if x[i, 0] < 0:\n        y = x[i].relu()\n    elif h is None:\n        y = x[i]\n    else:\n        y = x[i] * h\n    out[i] = y",
            expected,
        );
        check(
            "for i in range(9):\n    if not h[i]:\n        continue\n    out.append(x[i] * 2)",
            expected,
        );
    }

    #[test]
    fn branches_that_need_another_round_or_are_about_sizes() {
        let none = |body: &str| check(body, &[]);
        // The first round begins what the others go on with.
        none(
            "for t in range(9):\n    if t == 0:\n        h = x[t]\n    else:\n        h = h * x[t]",
        );
        none(
            "for t in range(9):\n    if x[t].sum() > 0:\n        last = x[t]\n    out.append(last)",
        );
        none("for t in range(9):\n    if h[t]:\n        s = s * 0\n    s = self.lin(s) + x[t]");
        none(
            "best = 0\nfor t in range(9):\n    y = x[t].sum()\n    if y > best:\n        best = y",
        );
        none("for t in range(9):\n    if len(out) < 4:\n        out.append(x[t])");
        none(
            "for t in range(9):\n    y = x[t]\n    if y.sum() > 4:\n        break\n    out.append(y)",
        );
        // Boxes of a picture, of which there may be any number.
        none(
            "for i in range(9):\n    if len(h[i]) == 0:\n        continue\n    out.append(x[i] * h[i])",
        );
        none("for b in x:\n    if b.shape[0] > 0:\n        total += b.sum()");
        none("for b in x:\n    if b.numel() == 0:\n        total += b.sum()");
        none("for a, b in zip(x, h):\n    if b is not None:\n        total += (a * b).sum()");
        none("for b in x:\n    if b[0] > 0:\n        total += b['boxes'].sum()");
        // Where the next token comes from is drawn.
        none(
            "for t in range(9):\n    if random.random() < 0.5:\n        out.append(x[t])\n    else:\n        out.append(h[t])",
        );
        none(
            "for t in range(9):\n    y = self.lin(tokens)\n    if y[0] > 0:\n        tokens = torch.cat([tokens, y])\n    out.append(x[t])",
        );
    }

    #[test]
    fn parameters_one_by_one() {
        let body = "for a, p in zip(self.parameters(), x.parameters()):\n    a.mul_(0.9).add_(p)";
        check(body, &[Rounds::Parameters]);
        check("for p in self.parameters():\n    p.requires_grad_(False)", &[]);
        check("for p in self.parameters():\n    total += p.norm()", &[]);
    }

    #[test]
    fn updates_by_hand() {
        let found = |body: &str| check(body, &[Rounds::Parameters]);
        found("for p in self.parameters():\n    p.data -= 0.1 * p.grad");
        found("for p in self.parameters():\n    p.data = p.data - 0.1 * p.grad\n    p.grad = None");
        found(
            "for p in self.parameters():\n    if p.grad is not None:\n        p.add_(p.grad, alpha=-0.1)",
        );
        found("for p in self.parameters():\n    with torch.no_grad():\n        p -= 0.1 * p.grad");
        found("weights = list(self.parameters())\nfor w, m in zip(weights, x):\n    w.sub_(m)");
        // An optimizer of one's own keeps what it is given.
        found(
            "for p, m in zip(self.params, self.m):\n    m.mul_(0.9).add_(p.grad)\n    p.sub_(0.1 * m)",
        );
        let adam = "if p.grad is None:\n    continue\ngrad, state = p.grad, self.state[p]\nif len(state) == 0:\n    state['m'] = torch.zeros_like(p)\nstate['step'] += 1\nm = state['m']\nm.lerp_(grad, 0.1)\np.add_(m, alpha=-0.1)";
        found(&format!("for p in h['params']:\n    {}", adam.replace('\n', "\n    ")));
        found(
            "for n, p in self.named_parameters():\n    self.mean[n] = 0.9 * self.mean[n] + 0.1 * p.data",
        );
        found(
            "for n, p in self.named_parameters():\n    if p.requires_grad:\n        assert n in self.mean\n        mean = 0.9 * self.mean[n] + 0.1 * p.data\n        self.mean[n].copy_(mean)",
        );
    }

    #[test]
    fn rounds_that_change_no_parameter_or_leave_something_are_none() {
        let none = |body: &str| check(body, &[]);
        none("for p in self.parameters():\n    p.grad = None");
        none("for p in self.parameters():\n    p.requires_grad = False");
        none("for n, p in self.named_parameters():\n    best[n] = p.detach().clone()");
        none("for p in self.parameters():\n    total.add_(p.norm())");
        none(
            "for p in self.parameters():\n    n = p.numel()\n    p.data.copy_(flat[at:at + n])\n    at += n",
        );
        none("for p in self.parameters():\n    p.mul_(before)\n    before = p.norm()");
        none("for p in self.parameters():\n    if torch.isnan(p.grad).any():\n        p.zero_()");
        none("for p in self.parameters():\n    p.add_(torch.randn_like(p))");
        none("for p in self.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= 2");
        none(
            "count = sum(p.numel() for p in self.parameters())\nfor i in range(count):\n    x[i] -= h[i]",
        );
        none("for p in self.groups:\n    p.data -= 0.1 * p.grad");
    }
}
