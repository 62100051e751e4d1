//! Loops that branch: whether a round needs what another one made, whichever way each goes at an `if`.

use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use std::collections::BTreeSet;

use tree_sitter::Node;

use super::loops::step;
use ridgeline_optimize::rewrite::syntax::{mentions, reads};
use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;

type Names = BTreeSet<String>;

/// What asks how large something is, or whether there is any: rounds then differ in more than numbers.
const SIZES: [&str; 10] =
    ["len", "shape", "size", "numel", "nonzero", "any", "isinstance", "is", "in", "None"];

/// Whether no round of a loop with these statements needs what another one made. `turning` is what tells
/// the rounds apart.
pub(super) fn are_independent(text: &Module, statements: &[Node<'_>], turning: &Names) -> bool {
    let mut seen = Seen::default();
    let given = follow(text, statements, Names::new(), &mut seen);
    let is_about_size = |condition: &Node<'_>| {
        let asks = reads(text, *condition);
        let written = text.text(&condition.byte_range());
        !(asks.is_disjoint(turning) && asks.is_disjoint(&seen.writes))
            && SIZES.iter().any(|word| mentions(written, word))
    };
    given.is_some()
        && !seen.conditions.iter().any(is_about_size)
        && seen.open.is_disjoint(&seen.writes)
        && seen.collected.is_disjoint(&seen.reads)
        && seen.collected.is_disjoint(&seen.writes)
        && !seen.reads.is_disjoint(turning)
}

/// What the statements of a round do.
#[derive(Default)]
struct Seen<'t> {
    conditions: Vec<Node<'t>>,
    reads: Names,
    /// Of these what the round may not have given a value by then.
    open: Names,
    writes: Names,
    collected: Names,
}

impl Seen<'_> {
    fn read(&mut self, names: Names, given: &Names) {
        self.open.extend(names.difference(given).cloned());
        self.reads.extend(names);
    }
}

/// Goes through statements, before which a round has surely given these names a value, and gives those of
/// behind them. None where something else is among them.
fn follow<'t>(
    text: &Module,
    statements: &[Node<'t>],
    mut given: Names,
    seen: &mut Seen<'t>,
) -> Option<Names> {
    for statement in statements {
        match Kind::of(statement) {
            Kind::ExpressionStatement => {
                let (read, written, into) = step(text, statement.named_child(0)?)?;
                seen.read(read, &given);
                seen.writes.extend(written.iter().cloned());
                seen.collected.extend(into);
                given.extend(written);
            }
            Kind::IfStatement => given = branch(text, *statement, given, seen)?,
            Kind::Comment | Kind::PassStatement => {}
            _ => return None,
        }
    }
    Some(given)
}

/// The same of an `if`: surely given is what each way gives.
fn branch<'t>(
    text: &Module,
    statement: Node<'t>,
    given: Names,
    seen: &mut Seen<'t>,
) -> Option<Names> {
    let mut walk = statement.walk();
    let others: Vec<Node<'t>> =
        statement.children_by_field_name("alternative", &mut walk).collect();
    let mut ways = Vec::new();
    for way in std::iter::once(statement).chain(others.iter().copied()) {
        let body = if way.is(Kind::ElseClause) { "body" } else { "consequence" };
        if let Some(condition) = way.field(Field::Condition) {
            seen.read(reads(text, condition), &given);
            seen.conditions.push(condition);
        }
        let body = named_children(way.child_by_field_name(body)?);
        // `continue` ends a round, and what is given behind it is read behind it.
        let body = match body.split_last() {
            Some((last, before)) if last.is(Kind::ContinueStatement) => before,
            _ => &body,
        };
        ways.push(follow(text, body, given.clone(), seen)?);
    }
    let is_complete = others.last().is_some_and(|last| last.is(Kind::ElseClause));
    let first = ways.pop().filter(|_| is_complete).unwrap_or(given);
    Some(ways.into_iter().fold(first, |all, way| all.intersection(&way).cloned().collect()))
}
