//! Where the fused call is written, and the statements that it replaces.

use ridgeline_python::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::Refusal;
use super::super::edits::Edits;
use super::super::layout::Layout;
use super::super::program::Program;

/// Writes a call in place of an expression, on several lines if one is too long.
pub(super) fn write<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    module: usize,
    expression: Node<'a>,
    (callee, arguments): (&str, &[String]),
) {
    let text = program.module(module);
    let layout = Layout::of(text);
    // A call needs no parentheses around it.
    let parent = expression.parent().filter(|parent| parent.is(Kind::ParenthesizedExpression));
    let replaced = parent.unwrap_or(expression);
    let line_start = text.index.lines().start_of(text.line(replaced.start_byte()));
    let before = text.index.text().get(line_start..replaced.start_byte()).unwrap_or_default();
    let end = replaced.end_byte();
    let after = text.index.text().get(end..layout.line_end_at(end)).unwrap_or_default();
    let after = after.split('#').next().unwrap_or_default().trim_end();
    let width = |text: &str| text.chars().count();
    let together = arguments.join(", ");
    let whole = format!("{callee}({together})");
    let is_short = width(before) + width(&whole) + width(after) <= layout.max_width();
    let outer = layout.indentation_of_line(replaced.start_byte());
    let inner = format!("{outer}{}", layout.unit());
    let line_end = layout.line_end;
    let call = if is_short && !whole.contains('\n') {
        whole
    } else if width(&inner) + width(&together) <= layout.max_width() && !together.contains('\n') {
        format!("{callee}({line_end}{inner}{together}{line_end}{outer})")
    } else {
        let lines: String =
            arguments.iter().map(|one| format!("{line_end}{inner}{one},")).collect();
        format!("{callee}({lines}{line_end}{outer})")
    };
    edits.replace(module, replaced.byte_range(), call);
}

/// Removes statements with their lines, the comments directly above them, and blank lines that would
/// be left twice or at the start of a block.
///
/// # Errors
/// Fails if a statement shares a line with another.
pub(super) fn remove<'a>(
    program: &Program<'a>,
    edits: &mut Edits<'a>,
    module: usize,
    statements: &[Node<'a>],
) -> Result<(), Refusal> {
    let text = program.module(module);
    let layout = Layout::of(text);
    let mut ordered = statements.to_vec();
    ordered.sort_by_key(|statement| statement.start_byte());
    let mut lines: Vec<(u32, u32)> = Vec::new();
    let is_blank = |line: u32| text.index.lines().trimmed(text.index.text(), line).is_empty();
    for statement in ordered {
        let is_alone = layout.indentation(statement.start_byte()).is_some()
            && layout.ends_line(statement.end_byte());
        if !is_alone {
            let what = "shares its line with another statement: put each on its own line";
            return Err(program.refuse(module, statement.start_byte(), what));
        }
        let last = text.line(statement.end_byte().saturating_sub(1));
        let mut first = text.line(statement.start_byte());
        let mut above = statement.prev_named_sibling();
        while let Some(comment) = above.filter(|above| above.is(Kind::Comment)) {
            let line = text.line(comment.start_byte());
            let has_own_line = layout.indentation(comment.start_byte()).is_some();
            if !has_own_line || line + 1 != first {
                break;
            }
            first = line;
            above = comment.prev_named_sibling();
        }
        match lines.last_mut() {
            // Only blank lines are between the two.
            Some((_, end)) if (*end + 1..first).all(is_blank) => *end = last,
            _ => lines.push((first, last)),
        }
    }
    for (first, mut last) in lines {
        let opens_block = |line: u32| {
            let trimmed = text.index.lines().trimmed(text.index.text(), line);
            text.text(&trimmed).ends_with(':')
        };
        let is_after_blank = first > 1 && (is_blank(first - 1) || opens_block(first - 1));
        let count = text.index.lines().count();
        while is_after_blank && last < count && is_blank(last + 1) {
            last += 1;
        }
        let start = text.index.lines().start_of(first);
        edits.replace(module, start..text.index.lines().start_of(last + 1), "");
    }
    Ok(())
}
