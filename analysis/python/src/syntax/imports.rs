//! Finds the imports of a file, at any nesting level.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::index::SourceIndex;

/// One imported module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The number of leading dots: 0 for an absolute import, 1 for `from . import x`.
    pub level: u32,
    /// The dotted name; empty for `from . import x`.
    pub module: String,
    /// The imported names, which may also be modules: `x` in `from . import x`.
    pub names: Vec<String>,
    /// The local names: for each name in `names`, or for the module itself if there are none. Empty
    /// for `from a import *`.
    pub local_names: Vec<String>,
}

/// The maximum number of imports read. No hand-written file has more.
const MAX_IMPORTS: usize = 10_000;

/// Returns the imports of a file, in order.
pub fn imports(index: &SourceIndex) -> Vec<Import> {
    let mut found = Vec::new();
    let Some(tree) = index.tree() else {
        return found;
    };
    let text = index.text();
    // The cursor walks without recursion: the nesting depth is unlimited.
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let descend = match Kind::of(&node) {
            Kind::ImportStatement => {
                for (name, local) in dotted_names(node, text) {
                    let (names, local_names) = (Vec::new(), vec![local]);
                    found.push(Import { level: 0, module: name, names, local_names });
                }
                false
            }
            Kind::ImportFromStatement => {
                found.extend(import_from(node, text));
                false
            }
            kind => !is_expression(kind),
        };
        if found.len() >= MAX_IMPORTS {
            found.truncate(MAX_IMPORTS);
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

/// Import statements only occur within statements, so expressions are skipped.
fn is_expression(kind: Kind) -> bool {
    matches!(kind, Kind::ExpressionStatement | Kind::ReturnStatement | Kind::Assignment)
}

fn import_from(node: Node<'_>, text: &str) -> Option<Import> {
    let module = node.field(Field::ModuleName)?;
    let written = text.get(module.byte_range())?;
    let name = written.trim_start_matches(|c: char| c == '.' || c.is_whitespace());
    let dots = written.chars().take_while(|c| *c == '.' || c.is_whitespace());
    let level = u32::try_from(dots.filter(|c| *c == '.').count()).unwrap_or(u32::MAX);
    let (names, local_names) = dotted_names(node, text).into_iter().unzip();
    Some(Import { level, module: without_spaces(name), names, local_names })
}

/// The children in the field `name`, as original and local names.
fn dotted_names(node: Node<'_>, text: &str) -> Vec<(String, String)> {
    let mut cursor = node.walk();
    node.children_by_field_name("name", &mut cursor)
        .take(MAX_IMPORTS)
        .filter_map(|child| {
            let own = child.field(Field::Name).unwrap_or(child);
            let own = text.get(own.byte_range()).map(without_spaces)?;
            let local = child.field(Field::Alias).and_then(|it| text.get(it.byte_range()));
            let local = local.map_or_else(|| own.clone(), without_spaces);
            Some((own, local))
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
    fn imports_in_functions_and_after_a_syntax_error() {
        check("def f():\n    if x:\n        import a\n", &[(0, "a", &[])]);
        check("x = = 3\nimport a\n", &[(0, "a", &[])]);
    }

    #[test]
    fn local_names() {
        let found = imports(&SourceIndex::new(
            "import a.b as c, d.e\nfrom f import g as h, i\nfrom j import *\n",
        ));
        let local: Vec<Vec<String>> = found.into_iter().map(|import| import.local_names).collect();
        let expected: [&[&str]; 4] = [&["c"], &["d.e"], &["h", "i"], &[]];
        assert_eq!(local, expected);
    }

    #[test]
    fn deep_nesting_is_safe() {
        let text = format!("{}import a\n", "(".repeat(20_000));
        let _ = imports(&SourceIndex::new(text.as_str()));
        let nested: String =
            (0..2_000).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
        let _ = imports(&SourceIndex::new(nested.as_str()));
    }
}
