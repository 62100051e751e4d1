//! Literals of numbers and strings.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::gather::named_children;
use super::module::Module;

/// The value of `32`, `1_024` or `0x20`.
pub(super) fn whole(written: &str) -> Option<u64> {
    let plain: String = written.chars().filter(|c| *c != '_').collect();
    let lower = plain.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok();
        }
    }
    let digits = !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| plain.parse().ok()).flatten()
}

/// The value of an expression that contains only integers, such as `2 ** 5` or `(4 * 8)`.
pub(super) fn folded(module: &Module, node: Node<'_>) -> Option<u64> {
    fold(module, node, 0)
}

fn fold(module: &Module, node: Node<'_>, depth: u32) -> Option<u64> {
    if depth > 32 {
        return None;
    }
    match Kind::of(&node) {
        Kind::Integer => whole(module.text(&node.byte_range())),
        Kind::ParenthesizedExpression => fold(module, *named_children(node).first()?, depth + 1),
        Kind::BinaryOperator => {
            let left = fold(module, node.field(Field::Left)?, depth + 1)?;
            let right = fold(module, node.field(Field::Right)?, depth + 1)?;
            match node.field(Field::Operator)?.kind() {
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "*" => left.checked_mul(right),
                "//" => left.checked_div(right),
                "**" => left.checked_pow(u32::try_from(right).ok()?),
                "<<" => left.checked_shl(u32::try_from(right).ok()?).filter(|_| right < 40),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The value of a plain string literal.
pub fn string(module: &Module, node: Node<'_>) -> Option<String> {
    if !node.is(Kind::String) {
        return None;
    }
    let children = named_children(node);
    if children.iter().any(|child| child.is(Kind::Interpolation)) {
        return None;
    }
    let content = children.iter().find(|child| child.is(Kind::StringContent));
    Some(content.map(|content| module.text(&content.byte_range()).to_owned()).unwrap_or_default())
}
