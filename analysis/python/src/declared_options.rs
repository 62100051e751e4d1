//! The command-line options that a program declares with `add_argument`, and their default values.

use tree_sitter::Node;

use crate::syntax::index::SourceIndex;
use crate::syntax::kind::{Field, Kind, TypedNode as _};

/// The maximum number of options of a file.
const MAX_OPTIONS: usize = 500;

/// An option of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredOption {
    /// `--data`.
    pub name: String,
    /// The default value, if it is a plain string.
    pub default: Option<String>,
}

/// Returns the options that a file declares, in the order of the file.
pub fn declared_options(index: &SourceIndex) -> Vec<DeclaredOption> {
    let (Some(tree), text) = (index.tree(), index.text()) else { return Vec::new() };
    let mut found = Vec::new();
    if !text.contains("add_argument") {
        return found;
    }
    // The cursor walks without recursion: the nesting depth is unlimited.
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is(Kind::Call)
            && let Some(Declaration { option, default, .. }) = declaration(node, text)
            && option.starts_with('-')
        {
            let default = default.map(str::to_owned);
            found.push(DeclaredOption { name: option.to_owned(), default });
        }
        if found.len() >= MAX_OPTIONS || !advance(&mut cursor) {
            return found;
        }
    }
}

/// Moves to the next node in the order of the text.
pub(super) fn advance(cursor: &mut tree_sitter::TreeCursor<'_>) -> bool {
    if cursor.goto_first_child() {
        return true;
    }
    while !cursor.goto_next_sibling() {
        if !cursor.goto_parent() {
            return false;
        }
    }
    true
}

/// The plain strings in a call of `add_argument`.
pub(super) struct Declaration<'t> {
    pub(super) option: &'t str,
    pub(super) default: Option<&'t str>,
    pub(super) action: Option<&'t str>,
}

/// Reads a call of `add_argument`.
pub(super) fn declaration<'t>(call: Node<'_>, text: &'t str) -> Option<Declaration<'t>> {
    let function = call.field(Field::Function)?;
    let name = text.get(function.byte_range())?;
    if name.rsplit('.').next() != Some("add_argument") {
        return None;
    }
    let arguments = call.field(Field::Arguments)?;
    let mut walk = arguments.walk();
    let (mut option, mut default, mut action) = (None, None, None);
    for argument in arguments.named_children(&mut walk) {
        if argument.is(Kind::KeywordArgument) {
            let keyword = argument.field(Field::Name)?;
            let value = argument.field(Field::Value).and_then(|it| string(it, text));
            match text.get(keyword.byte_range())? {
                "default" => default = value,
                "action" => action = value,
                _ => {}
            }
        } else if let Some(value) = string(argument, text)
            && (option.is_none() || value.starts_with("--"))
        {
            option = Some(value);
        }
    }
    Some(Declaration { option: option?, default, action })
}

/// The content of a plain string.
pub(super) fn string<'t>(node: Node<'_>, text: &'t str) -> Option<&'t str> {
    let mut walk = node.walk();
    let mut parts = node.named_children(&mut walk).filter(|it| it.is(Kind::StringContent));
    let content = parts.next().filter(|_| node.is(Kind::String) && parts.next().is_none())?;
    text.get(content.byte_range())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_defaults() {
        let text = "p.add_argument('-d', '--data', default='data/', help='x')\n\
            p.add_argument('file')\ngroup.add_argument('--lr', type=float, default=0.1)\n\
            p.add_argument(*names)\n";
        let found = declared_options(&SourceIndex::new(text));
        let shown: Vec<String> =
            found.iter().map(|it| format!("{} {:?}", it.name, it.default)).collect();
        assert_eq!(shown, ["--data Some(\"data/\")", "--lr None"]);
        assert!(declared_options(&SourceIndex::new("add_argument(")).is_empty());
    }
}
