//! Finds the code that the losses of a program depend on, judged by names.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeSet, HashMap, HashSet};

use tree_sitter::Node;

use super::super::Refusal;
use super::super::forward::{Backward, backwards, needed_by};
use super::super::models::Models;
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, reads, targets, writes};
use ridgeline_python::semantics::module::last_name;

/// Calls that request gradients without a backward pass.
const GRADIENT_REQUESTS: [&str; 6] = ["grad", "enable_grad", "jacobian", "hessian", "jvp", "vjp"];

/// The code that the losses depend on.
pub struct Losses<'a> {
    /// Each backward pass with the statements that lead to it.
    passes: Vec<(Backward<'a>, Vec<Node<'a>>)>,
    /// Functions called on the way to a loss.
    functions: HashSet<String>,
}

impl<'a> Losses<'a> {
    /// Collects the losses of a program. They are empty if it has no training loop of its own.
    ///
    /// # Errors
    /// Fails if it runs a backward pass in an unsupported form.
    pub fn of(program: &Program<'a>, models: &Models) -> Result<Losses<'a>, Refusal> {
        let backwards = match backwards(program) {
            Err(refusal) if program.calls().any(|(_, call)| call.name() == "backward") => {
                return Err(refusal);
            }
            other => other.unwrap_or_default(),
        };
        let passes = backwards.into_iter().map(|one| {
            let mut statements = needed_by(program, models, &one);
            statements.push(one.statement);
            (one, statements)
        });
        let passes: Vec<_> = passes.collect();
        let functions = functions(program, &passes);
        Ok(Losses { passes, functions })
    }

    /// Whether a function is called on the way to a loss.
    pub fn come_from(&self, function: &str) -> bool {
        self.functions.contains(function)
    }

    /// Whether a loss or another gradient depends on the result of a statement, in this iteration
    /// or the next.
    pub fn are_made_of(&self, program: &Program<'a>, scope: Scope, statement: Node<'a>) -> bool {
        let text = program.module(scope.0);
        let root = match scope.1.and_then(|at| text.functions.lookup(at)) {
            Some(function) => text.node(&function.body),
            None => text.index.tree().map(|tree| tree.root_node()),
        };
        // `torch.autograd.grad(…)` of values that are not tracked.
        let asks = |call: Node<'_>| GRADIENT_REQUESTS.contains(&last_name(&callee(text, call)));
        if root.is_none_or(|root| calls_in(root).into_iter().any(asks)) {
            return true;
        }
        let gives = writes(text, statement);
        let meets = |one: &Node<'a>| {
            one.start_byte() < statement.end_byte() && statement.start_byte() < one.end_byte()
        };
        let passes = self.passes.iter().filter(|(backward, _)| backward.scope == scope);
        let mut needed = passes.flat_map(|(_, statements)| statements);
        needed.any(|one| {
            let read = reads(text, *one);
            let mut shared = gives.intersection(&read).peekable();
            meets(one)
                || (shared.peek().is_some() && {
                    let reassigned = reassigned(program, scope, statement, *one);
                    shared.any(|name| !reassigned.contains(name))
                })
        })
    }
}

/// Returns the names that are reassigned between a statement that assigns them and one that reads
/// them: by statements in between that always run, or by the loops around it.
fn reassigned<'a>(
    program: &Program<'a>,
    scope: Scope,
    writer: Node<'a>,
    reader: Node<'a>,
) -> BTreeSet<String> {
    let text = program.module(scope.0);
    let mut found = BTreeSet::new();
    let is_before = writer.end_byte() <= reader.start_byte();
    let mut at = reader;
    while let Some(parent) = at.parent().filter(|one| !one.is(Kind::FunctionDefinition)) {
        let before = std::iter::successors(at.prev_named_sibling(), |one| one.prev_named_sibling());
        if matches!(Kind::of(&parent), Kind::Block | Kind::Module) {
            for one in before.take(4096) {
                let is_between = !is_before || one.start_byte() >= writer.end_byte();
                if one.is(Kind::ExpressionStatement) && is_between {
                    found.extend(writes(text, one));
                }
            }
        }
        let left = parent.field(Field::Left).filter(|_| parent.is(Kind::ForStatement));
        let is_within = parent.byte_range().contains(&writer.start_byte());
        // A loop reassigns its names in each round, not between two statements of one round.
        if let Some(left) = left.filter(|_| !is_before || !is_within) {
            found.extend(targets(text, left));
        }
        at = parent;
    }
    found
}

/// Returns the functions called on the way to a loss, following names, including those called from
/// the `forward` of any model.
fn functions(program: &Program<'_>, passes: &[(Backward<'_>, Vec<Node<'_>>)]) -> HashSet<String> {
    let names = |module: usize, node: Node<'_>| -> Vec<String> {
        let text = program.module(module);
        let calls = calls_in(node).into_iter();
        calls.map(|call| last_name(&callee(text, call)).to_owned()).collect()
    };
    let mut bodies: HashMap<&str, Vec<(usize, Node<'_>)>> = HashMap::new();
    for (module, text) in program.modules().iter().enumerate() {
        for function in &text.functions {
            if let Some(body) = text.node(&function.body) {
                bodies.entry(&function.name).or_default().push((module, body));
            }
        }
    }
    let mut waiting: Vec<String> = vec!["forward".to_owned(), "training_step".to_owned()];
    for (backward, statements) in passes {
        waiting.extend(statements.iter().flat_map(|one| names(backward.scope.0, *one)));
    }
    let mut found: HashSet<String> = HashSet::new();
    while let Some(name) = waiting.pop() {
        for (module, body) in bodies.get(name.as_str()).into_iter().flatten() {
            if !found.contains(&name) {
                waiting.extend(names(*module, *body));
            }
        }
        found.insert(name);
    }
    found
}
