//! What the losses of a program come from, as far as names tell.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::{BTreeSet, HashMap, HashSet};

use tree_sitter::Node;

use super::super::Refusal;
use super::super::forward::{Backward, backwards, needed_by};
use super::super::models::Models;
use super::super::program::{Program, Scope};
use super::super::syntax::{callee, calls_in, reads, targets, writes};
use ridgeline_python::semantics::module::last_name;

/// What asks for gradients without a backward pass.
const ASK: [&str; 6] = ["grad", "enable_grad", "jacobian", "hessian", "jvp", "vjp"];

/// What the losses come from.
pub struct Losses<'a> {
    /// Each backward pass, with the statements that lead to it.
    passes: Vec<(Backward<'a>, Vec<Node<'a>>)>,
    /// Functions that are called on the way there.
    functions: HashSet<String>,
}

impl<'a> Losses<'a> {
    /// None where the program has no training loop of its own.
    ///
    /// # Errors
    /// Where it goes back in a form that is not followed.
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

    /// Whether a loss, or another gradient, comes from what a statement gives, in this iteration or the
    /// next.
    pub fn are_made_of(&self, program: &Program<'a>, scope: Scope, statement: Node<'a>) -> bool {
        let text = program.module(scope.0);
        let root = match scope.1.and_then(|at| text.functions.lookup(at)) {
            Some(function) => text.node(&function.body),
            None => text.index.tree().map(|tree| tree.root_node()),
        };
        // `torch.autograd.grad(…)` of what is not followed.
        let asks = |call: Node<'_>| ASK.contains(&last_name(&callee(text, call)));
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
                    let renewed = renewed(program, scope, statement, *one);
                    shared.any(|name| !renewed.contains(name))
                })
        })
    }
}

/// The names that have another value by the time that a statement reads them than one statement gave
/// them: set by what always runs between, or by the loops around it.
fn renewed<'a>(
    program: &Program<'a>,
    scope: Scope,
    gives: Node<'a>,
    reads: Node<'a>,
) -> BTreeSet<String> {
    let text = program.module(scope.0);
    let mut found = BTreeSet::new();
    let is_before = gives.end_byte() <= reads.start_byte();
    let mut at = reads;
    while let Some(parent) = at.parent().filter(|one| !one.is(Kind::FunctionDefinition)) {
        let before = std::iter::successors(at.prev_named_sibling(), |one| one.prev_named_sibling());
        if matches!(Kind::of(&parent), Kind::Block | Kind::Module) {
            for one in before.take(4096) {
                let is_between = !is_before || one.start_byte() >= gives.end_byte();
                if one.is(Kind::ExpressionStatement) && is_between {
                    found.extend(writes(text, one));
                }
            }
        }
        let left = parent.field(Field::Left).filter(|_| parent.is(Kind::ForStatement));
        let is_within = parent.byte_range().contains(&gives.start_byte());
        // The loop gives its names anew in each round, not between two statements of one.
        if let Some(left) = left.filter(|_| !is_before || !is_within) {
            found.extend(targets(text, left));
        }
        at = parent;
    }
    found
}

/// The functions that are called on the way to a loss, one from another by their names; also from the
/// `forward` of any model.
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
