//! Loops with `if` statements: whether one loop iteration needs values of another one, whichever
//! branches they take.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use super::loops::step;
use ridgeline_optimize::rewrite::syntax::{mentions, reads};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;

type Names = BTreeSet<String>;

/// Words of conditions about a size or about whether there is any: loop iterations then differ in
/// more than values.
const SIZE_WORDS: [&str; 10] =
    ["len", "shape", "size", "numel", "nonzero", "any", "isinstance", "is", "in", "None"];

/// Whether no iteration of a loop with these statements needs a value from another one.
/// `loop_variables` are the variables that differ between iterations.
pub(super) fn are_independent(
    text: &Module,
    statements: &[Node<'_>],
    loop_variables: &Names,
) -> bool {
    let mut effects = Effects::default();
    let assigned = follow(text, statements, Names::new(), &mut effects);
    let is_about_size = |condition: &Node<'_>| {
        let names = reads(text, *condition);
        let written = text.text(&condition.byte_range());
        !(names.is_disjoint(loop_variables) && names.is_disjoint(&effects.writes))
            && SIZE_WORDS.iter().any(|word| mentions(written, word))
    };
    assigned.is_some()
        && !effects.conditions.iter().any(is_about_size)
        && effects.maybe_unassigned.is_disjoint(&effects.writes)
        && effects.collected.is_disjoint(&effects.reads)
        && effects.collected.is_disjoint(&effects.writes)
        && !effects.reads.is_disjoint(loop_variables)
}

/// What the statements of one loop iteration do.
#[derive(Default)]
struct Effects<'t> {
    conditions: Vec<Node<'t>>,
    reads: Names,
    /// The names in `reads` that may not have been assigned by then in the iteration.
    maybe_unassigned: Names,
    writes: Names,
    collected: Names,
}

impl Effects<'_> {
    fn read(&mut self, names: Names, assigned: &Names) {
        self.maybe_unassigned.extend(names.difference(assigned).cloned());
        self.reads.extend(names);
    }
}

/// Visits statements before which the iteration has definitely assigned the names in `assigned`, and
/// returns the names that are definitely assigned after them. Returns `None` if there is any other
/// kind of statement.
fn follow<'t>(
    text: &Module,
    statements: &[Node<'t>],
    mut assigned: Names,
    effects: &mut Effects<'t>,
) -> Option<Names> {
    for statement in statements {
        match Kind::of(statement) {
            Kind::ExpressionStatement => {
                let (read, written, into) = step(text, statement.named_child(0)?)?;
                effects.read(read, &assigned);
                effects.writes.extend(written.iter().cloned());
                effects.collected.extend(into);
                assigned.extend(written);
            }
            Kind::IfStatement => assigned = branch(text, *statement, assigned, effects)?,
            Kind::Comment | Kind::PassStatement => {}
            _ => return None,
        }
    }
    Some(assigned)
}

/// Like [`follow`] for an `if`: definitely assigned is what every branch assigns.
fn branch<'t>(
    text: &Module,
    statement: Node<'t>,
    assigned: Names,
    effects: &mut Effects<'t>,
) -> Option<Names> {
    let mut walk = statement.walk();
    let others: Vec<Node<'t>> =
        statement.children_by_field_name("alternative", &mut walk).collect();
    let mut branches = Vec::new();
    for branch in std::iter::once(statement).chain(others.iter().copied()) {
        let body = if branch.is(Kind::ElseClause) { "body" } else { "consequence" };
        if let Some(condition) = branch.field(Field::Condition) {
            effects.read(reads(text, condition), &assigned);
            effects.conditions.push(condition);
        }
        let body = named_children(branch.child_by_field_name(body)?);
        // `continue` ends the iteration. Treating the branch as if it went on is conservative: it
        // only removes names from those that are definitely assigned.
        let body = match body.split_last() {
            Some((last, before)) if last.is(Kind::ContinueStatement) => before,
            _ => &body,
        };
        branches.push(follow(text, body, assigned.clone(), effects)?);
    }
    let is_complete = others.last().is_some_and(|last| last.is(Kind::ElseClause));
    let first = branches.pop().filter(|_| is_complete).unwrap_or(assigned);
    Some(
        branches
            .into_iter()
            .fold(first, |all, branch| all.intersection(&branch).cloned().collect()),
    )
}
