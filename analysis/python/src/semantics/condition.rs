//! Evaluates conditions that are known without running anything: constants and switches.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::gather::named_children;
use super::module::{Branch, Span};
use super::trace::{Constant, Place, PossibleValues, Tracer};

impl Tracer<'_> {
    /// Whether a branch is taken, or `None` if that is unknown.
    pub fn branch_holds(&self, module: usize, branch: &Branch) -> Option<bool> {
        let place = Place { module, span: branch.condition.clone() };
        let node = self.modules[module].node(&branch.condition)?;
        Some(self.truth(&place, node)? == branch.holds)
    }

    /// Whether a condition holds, or `None` if that is unknown.
    pub fn truth(&self, place: &Place, condition: Node<'_>) -> Option<bool> {
        self.deeper(|| self.own_truth(place, condition)).flatten()
    }

    fn own_truth(&self, place: &Place, condition: Node<'_>) -> Option<bool> {
        let field = |name: Field| condition.field(name);
        match Kind::of(&condition) {
            Kind::ParenthesizedExpression => self.truth(place, *named_children(condition).first()?),
            Kind::NotOperator => Some(!self.truth(place, field(Field::Argument)?)?),
            Kind::BooleanOperator => {
                let left = self.truth(place, field(Field::Left)?);
                let right = self.truth(place, field(Field::Right)?);
                match (field(Field::Operator)?.kind(), left, right) {
                    ("and", Some(false), _) | ("and", _, Some(false)) => Some(false),
                    ("or", Some(true), _) | ("or", _, Some(true)) => Some(true),
                    (_, Some(left), Some(right)) if left == right => Some(left),
                    ("and" | "or", Some(left), Some(right)) => {
                        Some(if field(Field::Operator)?.kind() == "and" {
                            left && right
                        } else {
                            left || right
                        })
                    }
                    _ => None,
                }
            }
            Kind::ComparisonOperator => self.comparison(place, condition),
            Kind::True => Some(true),
            Kind::False | Kind::None => Some(false),
            Kind::Integer | Kind::Identifier | Kind::Attribute | Kind::Subscript => {
                truth_of(&self.part(place, condition, &[]))
            }
            _ => None,
        }
    }

    fn comparison(&self, place: &Place, node: Node<'_>) -> Option<bool> {
        let module = &self.modules[place.module];
        let sides = named_children(node);
        let [left, right] = sides[..] else { return None };
        let between = module.text(&(left.end_byte()..right.start_byte())).trim();
        let is_equal = match between {
            "==" | "is" => true,
            "!=" | "is not" => false,
            "<" | ">" | "<=" | ">=" => {
                let (left, right) = (self.one_number(place, left)?, self.one_number(place, right)?);
                return Some(match between {
                    "<" => left < right,
                    ">" => left > right,
                    "<=" => left <= right,
                    _ => left >= right,
                });
            }
            _ => return None,
        };
        let name = |node: Node<'_>| module.text(&node.byte_range()) == "__name__";
        if name(left) || name(right) {
            // Only the entry is the main program, and it is the first module.
            return Some((place.module == 0) == is_equal);
        }
        let constant = |node: Node<'_>| {
            let found = self.part(place, node, &[]);
            match (&found.constants[..], &found.numbers[..], &found.doubts[..]) {
                ([constant], [], []) => Some(Ok(constant.clone())),
                ([], [number], []) => Some(Err(number.value)),
                _ => None,
            }
        };
        Some((constant(left)? == constant(right)?) == is_equal)
    }

    /// The only number that an expression can be.
    fn one_number(&self, place: &Place, node: Node<'_>) -> Option<u64> {
        let found = self.part(place, node, &[]);
        match (&found.numbers[..], &found.constants[..], &found.doubts[..]) {
            ([number], [], []) => Some(number.value),
            _ => None,
        }
    }

    /// The `if` branches around a place.
    pub fn branches_at(&self, place: &Place) -> Vec<Branch> {
        let module = &self.modules[place.module];
        let around = |span: &Span| {
            span.start <= place.span.start && place.span.end <= span.end && !place.span.is_empty()
        };
        let calls = module.calls.iter().filter(|call| around(&call.span));
        let assignments =
            module.assignments.iter().filter(|one| around(&one.value)).map(|one| &one.branches);
        let all = calls.map(|call| &call.branches).chain(assignments);
        all.max_by_key(|branches| branches.len()).cloned().unwrap_or_default()
    }
}

fn truth_of(found: &PossibleValues) -> Option<bool> {
    if !found.doubts.is_empty() {
        return None;
    }
    match (&found.constants[..], &found.numbers[..]) {
        ([Constant::Truth(truth)], []) => Some(*truth),
        ([Constant::Nothing], []) => Some(false),
        ([Constant::Text(text)], []) => Some(!text.is_empty()),
        ([], [number]) => Some(number.value != 0),
        _ => None,
    }
}
