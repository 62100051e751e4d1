//! What a text imports, wherever in it the statement stands.

use tree_sitter::Node;

use super::index::SourceIndex;

/// One imported module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// How many dots stand before the name: 0 for an absolute import, 1 for `from . import x`.
    pub level: u32,
    /// The dotted name; empty for `from . import x`.
    pub module: String,
    /// What is imported from it, which may be modules too: `x` of `from . import x`.
    pub names: Vec<String>,
}

/// No text of a person imports more than this; a machine's text is not followed further.
const MOST_IMPORTS: usize = 10_000;

/// The imports of a text, in order.
pub fn imports(index: &SourceIndex) -> Vec<Import> {
    let mut found = Vec::new();
    let Some(tree) = index.tree() else {
        return found;
    };
    let text = index.text();
    // The cursor walks without recursion: a text may be nested as deeply as it likes.
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let descend = match node.kind() {
            "import_statement" => {
                for name in dotted_names(node, text) {
                    found.push(Import { level: 0, module: name, names: Vec::new() });
                }
                false
            }
            "import_from_statement" => {
                found.extend(import_from(node, text));
                false
            }
            kind => !is_expression(kind),
        };
        if found.len() >= MOST_IMPORTS {
            found.truncate(MOST_IMPORTS);
            return found;
        }
        if descend && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return found;
            }
        }
    }
}

/// Import statements stand within statements alone, so expressions need no look inside.
fn is_expression(kind: &str) -> bool {
    kind == "expression_statement" || kind == "return_statement" || kind == "assignment"
}

fn import_from(node: Node<'_>, text: &str) -> Option<Import> {
    let module = node.child_by_field_name("module_name")?;
    let written = text.get(module.byte_range())?;
    let name = written.trim_start_matches(|c: char| c == '.' || c.is_whitespace());
    let dots = written.chars().take_while(|c| *c == '.' || c.is_whitespace());
    let level = u32::try_from(dots.filter(|c| *c == '.').count()).unwrap_or(u32::MAX);
    Some(Import { level, module: without_spaces(name), names: dotted_names(node, text) })
}

/// The children in the field `name`, with their own names where they are renamed by `as`.
fn dotted_names(node: Node<'_>, text: &str) -> Vec<String> {
    let mut cursor = node.walk();
    node.children_by_field_name("name", &mut cursor)
        .take(MOST_IMPORTS)
        .filter_map(|child| {
            let name = child.child_by_field_name("name").unwrap_or(child);
            text.get(name.byte_range()).map(without_spaces)
        })
        .collect()
}

fn without_spaces(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(u32, &str, &[&str])]) {
        let found = imports(&SourceIndex::new(text));
        let found: Vec<(u32, &str, Vec<&str>)> = found
            .iter()
            .map(|import| {
                let names = import.names.iter().map(String::as_str).collect();
                (import.level, import.module.as_str(), names)
            })
            .collect();
        let expected: Vec<(u32, &str, Vec<&str>)> = expected
            .iter()
            .map(|(level, module, names)| (*level, *module, names.to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn plain_imports() {
        check("import torch, a.b as c\n", &[(0, "torch", &[]), (0, "a.b", &[])]);
    }

    #[test]
    fn from_imports() {
        check("from a.b import c as d, e\n", &[(0, "a.b", &["c", "e"])]);
        check("from a import (\n    b,\n)\n", &[(0, "a", &["b"])]);
        check("from a import *\n", &[(0, "a", &[])]);
    }

    #[test]
    fn relative_imports() {
        check("from . import x\n", &[(1, "", &["x"])]);
        check("from ..a.b import x\n", &[(2, "a.b", &["x"])]);
    }

    #[test]
    fn within_functions_and_after_a_mistake() {
        check("def f():\n    if x:\n        import a\n", &[(0, "a", &[])]);
        check("x = = 3\nimport a\n", &[(0, "a", &[])]);
    }

    #[test]
    fn depth_is_no_danger() {
        let text = format!("{}import a\n", "(".repeat(20_000));
        let _ = imports(&SourceIndex::new(text.as_str()));
        let nested: String =
            (0..2_000).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
        let _ = imports(&SourceIndex::new(nested.as_str()));
    }
}
