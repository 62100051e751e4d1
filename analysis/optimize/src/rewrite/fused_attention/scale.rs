//! The factor by which scores are scaled, as the argument `scale`.

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::last_name;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::program::Program;
use super::super::syntax::{callee, written};

/// The maximum number of names followed from one to the next.
const MAX_DEPTH: u32 = 8;

/// A factor of the scores, or a divisor.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub value: Node<'a>,
    pub is_divisor: bool,
}

/// Returns the argument `scale`, or `None` for the default, one over the square root of the width of
/// `queries` and `keys`.
pub(super) fn scale(
    program: &Program<'_>,
    module: usize,
    factors: &[Factor<'_>],
    tensors: [&str; 2],
) -> Option<String> {
    let text = program.module(module);
    if let [one] = factors
        && is_default(&written(text, one.value), one.is_divisor, tensors)
    {
        return None;
    }
    if let [Factor { value, is_divisor: false }] = factors {
        // One factor needs no parentheses.
        return Some(text.text(&unwrapped(*value).byte_range()).to_owned());
    }
    let factor = |one: &Factor<'_>| {
        let value = text.text(&one.value.byte_range());
        match Kind::of(&one.value) {
            Kind::BinaryOperator | Kind::UnaryOperator | Kind::ConditionalExpression => {
                format!("({value})")
            }
            _ => value.to_owned(),
        }
    };
    let (divisors, multipliers): (Vec<_>, Vec<_>) =
        factors.iter().partition(|factor| factor.is_divisor);
    let multiplied: Vec<String> = multipliers.into_iter().map(factor).collect();
    let divided: String = divisors.into_iter().map(|one| format!(" / {}", factor(one))).collect();
    let multiplied = if multiplied.is_empty() { "1.0".to_owned() } else { multiplied.join(" * ") };
    Some(format!("{multiplied}{divided}"))
}

fn unwrapped(node: Node<'_>) -> Node<'_> {
    let inner = Some(node).filter(|node| node.is(Kind::ParenthesizedExpression));
    inner.and_then(|inner| inner.named_child(0)).unwrap_or(node)
}

/// Whether a factor is the default: `1 / math.sqrt(k.size(-1))` and its other forms.
fn is_default(factor: &str, is_divisor: bool, tensors: [&str; 2]) -> bool {
    let without = |text: &str| text.replace(['(', ')'], "");
    let factor = without(factor).replace("1.0/", "1/");
    tensors.iter().filter(|tensor| !tensor.is_empty()).any(|tensor| {
        let tensor: String = tensor.chars().filter(|c| !c.is_whitespace()).collect();
        let widths = [format!("{tensor}.size(-1)"), format!("{tensor}.shape[-1]")];
        widths.iter().any(|width| {
            let width = without(width);
            let root = |function: &str| format!("{function}{width}");
            let roots = [root("math.sqrt"), root("sqrt"), root("np.sqrt"), format!("{width}**0.5")];
            let inverse = format!("{width}**-0.5");
            match is_divisor {
                true => roots.contains(&factor),
                false => {
                    factor == inverse || roots.iter().any(|root| factor == format!("1/{root}"))
                }
            }
        })
    })
}

/// Whether an expression is a number of Python, not a tensor. Unknown is false.
pub(super) fn is_number(program: &Program<'_>, module: usize, node: Node<'_>, depth: u32) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let text = program.module(module);
    let follow = |node: Node<'_>| is_number(program, module, node, depth + 1);
    match Kind::of(&node) {
        Kind::Integer | Kind::Float => true,
        Kind::ParenthesizedExpression => node.named_child(0).is_some_and(follow),
        Kind::UnaryOperator => node.field(Field::Argument).is_some_and(follow),
        Kind::BinaryOperator => {
            node.field(Field::Left).is_some_and(follow)
                && node.field(Field::Right).is_some_and(follow)
        }
        Kind::Call => {
            let name = callee(text, node);
            let qualified = program.absolute(module, &name);
            qualified.starts_with("math.")
                || matches!(name.as_str(), "float" | "int" | "len")
                || (last_name(&name) == "size" && has_arguments(node))
        }
        Kind::Subscript => {
            node.field(Field::Value).is_some_and(|value| written(text, value).ends_with(".shape"))
        }
        Kind::Identifier | Kind::Attribute => {
            let name = written(text, node);
            let function = text.function_at(node.start_byte());
            let class = program.class_of((module, function));
            let is_attribute = name.starts_with("self.");
            if node.is(Kind::Attribute) && !is_attribute {
                return false;
            }
            let mut assigned = text.assignments.iter().filter(|one| {
                let is_here = match is_attribute {
                    true => program.class_of((module, one.function)) == class,
                    false => one.function == function || one.function.is_none(),
                };
                one.target == name && is_here
            });
            let mut is_assigned = false;
            let all_are_numbers = assigned.all(|one| {
                is_assigned = true;
                let value = text.node(&one.value);
                value.is_some_and(|value| match one.element {
                    Some(_) => is_shape(&written(text, value)),
                    None => follow(value),
                })
            });
            let is_constructors = || {
                let function = function.and_then(|at| text.functions.lookup(at));
                function.is_some_and(|one| {
                    let mut parameters = one.parameters.iter();
                    one.name == "__init__" && parameters.any(|parameter| parameter.name == name)
                })
            };
            all_are_numbers && (is_assigned || is_constructors())
        }
        _ => false,
    }
}

fn has_arguments(call: Node<'_>) -> bool {
    call.field(Field::Arguments).is_some_and(|list| !named_children(list).is_empty())
}

/// Whether an expression is the sizes of a tensor.
fn is_shape(written: &str) -> bool {
    written.ends_with(".shape") || written.ends_with(".size()")
}
