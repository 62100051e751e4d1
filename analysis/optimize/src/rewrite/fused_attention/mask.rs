//! Masks of scores as the argument `attn_mask`, which is true where a query may see a key.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{object_of, written};

/// A mask of the scores.
pub(super) struct Mask<'a> {
    /// What is masked, or, if `is_kept`, what is not.
    pub place: Node<'a>,
    pub is_kept: bool,
    /// Whether masked scores are a large negative number, not minus infinity.
    pub is_finite: bool,
    /// The condition under which scores are masked.
    pub condition: Option<Node<'a>>,
}

/// The score that masked places have.
pub(super) enum Fill {
    Infinite,
    /// A number so small that its exponential is 0.
    Finite,
    Other,
}

impl Fill {
    pub(super) fn of(text: &Module, value: Node<'_>) -> Fill {
        let value = written(text, value).to_lowercase().replace(['\'', '"'], "");
        let infinite = [
            "float(-inf)",
            "-float(inf)",
            "-torch.inf",
            "-math.inf",
            "-np.inf",
            "-numpy.inf",
            "-inf",
            "float(-infinity)",
        ];
        let is_smallest = value.starts_with("torch.finfo(") && value.ends_with(").min")
            || value.starts_with("-torch.finfo(") && value.ends_with(").max");
        match value.parse::<f64>() {
            _ if infinite.contains(&value.as_str()) => Fill::Infinite,
            _ if is_smallest => Fill::Finite,
            Ok(number) if number <= -1e4 => Fill::Finite,
            _ => Fill::Other,
        }
    }
}

/// Returns where a query may see a key.
pub(super) fn kept(text: &Module, mask: &Mask<'_>) -> String {
    let place = mask.place;
    let as_written = text.text(&place.byte_range());
    if mask.is_kept {
        return as_written.to_owned();
    }
    if let Some(opposite) = opposite(text, place) {
        return opposite;
    }
    match Kind::of(&place) {
        Kind::Identifier | Kind::Attribute | Kind::Subscript | Kind::Call => {
            format!("~{as_written}")
        }
        Kind::ParenthesizedExpression => format!("~{as_written}"),
        _ => format!("~({as_written})"),
    }
}

/// The opposite of a comparison or a negation.
fn opposite(text: &Module, place: Node<'_>) -> Option<String> {
    match Kind::of(&place) {
        Kind::ParenthesizedExpression => opposite(text, place.named_child(0)?),
        Kind::UnaryOperator if place.child(0)?.kind() == "~" => {
            Some(text.text(&place.field(Field::Argument)?.byte_range()).to_owned())
        }
        Kind::ComparisonOperator => {
            let sides = named_children(place);
            let ([left, right], operator) = (sides.as_slice(), place.child(1)?) else {
                return None;
            };
            let opposite = match operator.kind() {
                "==" => "!=",
                "!=" => "==",
                "<" => ">=",
                ">=" => "<",
                ">" => "<=",
                "<=" => ">",
                _ => return None,
            };
            let [left, right] = [left, right].map(|side| text.text(&side.byte_range()));
            Some(format!("{left} {opposite} {right}"))
        }
        Kind::Call => {
            let object = object_of(text, place, "logical_not")?;
            Some(text.text(&object.byte_range()).to_owned())
        }
        _ => None,
    }
}

/// Whether a mask leaves each query its own key and those before it: a square of a lower triangle of
/// ones, `self.bias[:, :, :T, :T] == 0`.
pub(super) fn is_causal(program: &Program<'_>, module: usize, mask: &Mask<'_>) -> bool {
    let text = program.module(module);
    let square = || {
        let comparison = Some(mask.place).filter(|one| one.is(Kind::ComparisonOperator))?;
        let sides = named_children(comparison);
        let [left, right] = sides.as_slice() else { return None };
        let is_zero = matches!(written(text, *right).as_str(), "0" | "0.0" | "False");
        let square = Some(left).filter(|one| one.is(Kind::Subscript) && is_zero)?;
        (comparison.child(1)?.kind() == "==").then_some(*square)
    };
    let Some(square) = square().filter(|_| !mask.is_kept && mask.condition.is_none()) else {
        return false;
    };
    let Some(buffer) = square.field(Field::Value).map(|value| written(text, value)) else {
        return false;
    };
    let slices: Vec<String> =
        named_children(square).into_iter().skip(1).map(|slice| written(text, slice)).collect();
    let is_square = match slices.as_slice() {
        [batch @ .., rows, columns] => {
            rows == columns
                && rows.strip_prefix(':').is_some_and(|end| !end.is_empty() && !end.contains(':'))
                && batch.iter().all(|slice| slice == ":")
        }
        _ => false,
    };
    let Some(name) = buffer.strip_prefix("self.").filter(|_| is_square) else { return false };
    let class_of = |offset: usize| program.class_of((module, text.function_at(offset)));
    let class = class_of(mask.place.start_byte());
    let registrations = text.calls.iter().filter(|call| {
        let node = text.node(&call.span);
        let arguments = node.and_then(|node| node.field(Field::Arguments)).map(named_children);
        let first = arguments.and_then(|arguments| arguments.first().copied());
        let is_it =
            first.is_some_and(|first| written(text, first).trim_matches(['"', '\'']) == name);
        call.callee == "self.register_buffer" && is_it && class_of(call.span.start) == class
    });
    let mut count = 0;
    let all_are_triangles = registrations.into_iter().all(|call| {
        count += 1;
        let node = text.node(&call.span);
        let arguments = node.and_then(|node| node.field(Field::Arguments)).map(named_children);
        let value = arguments.and_then(|arguments| arguments.get(1).copied());
        let value = value.map(|value| written(text, value)).unwrap_or_default();
        value.starts_with("torch.tril(torch.ones(") && !value.contains("diagonal")
    });
    let is_assigned = text
        .assignments
        .iter()
        .any(|one| one.target == buffer && program.class_of((module, one.function)) == class);
    count == 1 && all_are_triangles && !is_assigned
}
