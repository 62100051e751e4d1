//! A short text for an expression among others of its line: `self.conv(…)`, `… @ w`.

use std::ops::Range;

use super::index::SourceIndex;
use super::kind::{Field, Kind, TypedNode};
use ridgeline_base::printable::shorten;
use tree_sitter::Node;

/// Operands and arguments up to this many characters are written out if they run nothing.
const MAX_OPERAND: usize = 16;
/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 36;

/// Returns the label of the expression at a span: itself, with `…` for what it is computed from.
pub fn expression_label(index: &SourceIndex, span: &Range<usize>) -> String {
    let text = index.text();
    let label = node_at(index, span).and_then(|node| of_node(text, &node));
    let label = label.unwrap_or_else(|| without_quotes(text.get(span.clone()).unwrap_or_default()));
    shorten(&in_one_line(&label), MAX_LABEL)
}

/// Returns where a hint about the expression at a span belongs: between the function and the
/// arguments of a call, after an operator, else after the expression.
pub fn expression_anchor(index: &SourceIndex, span: &Range<usize>) -> usize {
    let anchor = node_at(index, span).and_then(|node| match Kind::of(&node) {
        Kind::Call => node.field(Field::Function),
        Kind::BinaryOperator => node.field(Field::Operator),
        _ => None,
    });
    anchor.map_or(span.end, |node| node.end_byte())
}

fn node_at<'t>(index: &'t SourceIndex, span: &Range<usize>) -> Option<Node<'t>> {
    let root = index.tree()?.root_node();
    root.descendant_for_byte_range(span.start, span.end)
        .filter(|node| node.start_byte() <= span.start && span.end <= node.end_byte())
}

fn of_node(text: &str, node: &Node<'_>) -> Option<String> {
    let of = |node: Node<'_>| text.get(node.byte_range());
    Some(match Kind::of(node) {
        Kind::Call => {
            let arguments = node.field(Field::Arguments)?;
            let inside = of(arguments)?;
            let inside = inside.strip_prefix('(').and_then(|inside| inside.strip_suffix(')'));
            let inside = inside.unwrap_or("…").trim();
            format!("{}({})", callee(text, &node.field(Field::Function)?)?, operand(inside))
        }
        Kind::BinaryOperator => {
            let (left, right) = (node.field(Field::Left)?, node.field(Field::Right)?);
            let operator = of(node.field(Field::Operator)?)?;
            let (first, second) = (of(left)?, of(right)?);
            format!("{} {operator} {}", operand(first), operand(second))
        }
        _ => return None,
    })
}

/// `self.conv`; `.relu` if it is a method of something that is computed.
fn callee<'t>(text: &'t str, function: &Node<'_>) -> Option<&'t str> {
    let of = |node: Node<'_>| text.get(node.byte_range());
    if is_plain(function) {
        return of(*function);
    }
    if function.is(Kind::Attribute) {
        let method = function.field(Field::Attribute)?;
        // The dot is before it, perhaps on another line.
        return text.get(..method.start_byte())?.rfind('.').and_then(|dot| {
            let between = text.get(dot + 1..method.start_byte())?;
            let written = text.get(dot..method.end_byte())?;
            if between.is_empty() { Some(written) } else { of(method) }
        });
    }
    Some(operand(of(*function)?))
}

fn operand(written: &str) -> &str {
    let is_short = written.chars().count() <= MAX_OPERAND;
    // People share labels, and quoted text may be private.
    let left_out = ['(', '@', '*', '+', '/', '{', '\n', '\r', '"', '\''];
    if is_short && !written.contains(left_out) { written } else { "…" }
}

/// Whether a node is a name, or an attribute of one.
fn is_plain(node: &Node<'_>) -> bool {
    let mut node = *node;
    // Far more than any name has.
    for _ in 0..64 {
        if node.is(Kind::Identifier) {
            return true;
        }
        match node.field(Field::Object).filter(|_| node.is(Kind::Attribute)) {
            Some(object) => node = object,
            None => return false,
        }
    }
    false
}

/// Replaces quoted text: `batch["image"]` becomes `batch[…]`.
fn without_quotes(text: &str) -> String {
    let mut label = String::new();
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => {
                label.push('…');
                quote = Some(letter);
            }
            None => label.push(letter),
        }
    }
    label
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the label of the expression between `«` and `»`.
    fn check(marked: &str, expected: &str) {
        let start = marked.find('«').expect("a start");
        let end = marked.find('»').expect("an end") - '«'.len_utf8();
        let index = SourceIndex::new(marked.replace(['«', '»'], ""));
        assert_eq!(expression_label(&index, &(start..end)), expected);
    }

    #[test]
    fn calls() {
        check("y = self.act(«self.norm(self.conv(x))»)", "self.norm(…)");
        check("y = self.norm(«self.conv(x)»)", "self.conv(x)");
        check("y = «x.relu()»", "x.relu()");
        check("y = «x.relu().view(3, 4)»", ".view(3, 4)");
        check("y = (x\n    .relu()\n    .«view(f(3))»)", ".view(…)");
        check("y = «layers[0](x)»", "layers[0](x)");
        check("y = «f(x())»", "f(…)");
        check("«login('secret')»; f()", "login(…)");
        check("y = «f(\n    a(x),\n    b(x))»", "f(…)");
    }

    #[test]
    fn operators() {
        check("y = «a @ b» @ c", "a @ b");
        check("y = «a @ b @ c»", "… @ c");
        check("y = «self.attention(x) + x»", "… + x");
        check("y = «x[:512] @ self.a.weight»", "x[:512] @ self.a.weight");
    }

    #[test]
    fn other_expressions_are_written_out() {
        check("y = «x[:, 0]» + z", "x[:, 0]");
        check("y = «x[:,\n    0]» + z", "x[:, 0]");
        check("y = «batch['image']» + z", "batch[…]");
        check("if «key == \"secret\"»: f()", "key == …");
        check("if «key == 'un»", "key == …");
        let long = format!("y = «x[{}]»", "1, ".repeat(40));
        check(&long, "x[1, 1, 1, 1, 1, 1, 1, …, 1, 1, 1, ]");
    }

    #[test]
    fn hints_are_between_functions_and_arguments() {
        let text = "y = self.act(self.conv(x)) @ w";
        let index = SourceIndex::new(text);
        let check = |span: Range<usize>, before: &str| {
            assert_eq!(&text[..expression_anchor(&index, &span)], before);
        };
        check(4..26, "y = self.act");
        check(13..25, "y = self.act(self.conv");
        check(4..30, "y = self.act(self.conv(x)) @");
        check(0..1, "y");
    }

    #[test]
    fn text_that_is_no_expression() {
        check("y = «(((» )", "(((");
        check("«»", "");
    }
}
