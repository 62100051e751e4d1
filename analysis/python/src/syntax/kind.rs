//! The kinds of syntax nodes as enums that the compiler checks, instead of strings.

use std::sync::LazyLock;

use tree_sitter::Node;

pub use super::kinds::{Field, Kind};
use super::parse::language;

/// [`Kind`]s by tree-sitter's kind id.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let language = language();
    let numbers = 0..u16::try_from(language.node_kind_count()).unwrap_or(u16::MAX);
    let kind = |number| match language.node_kind_for_id(number) {
        Some(name) if language.node_kind_is_named(number) => Kind::named(name),
        _ => Kind::Other,
    };
    numbers.map(kind).collect()
});

/// tree-sitter's field id of each [`Field`].
static FIELDS: LazyLock<Vec<u16>> = LazyLock::new(|| {
    let number = |field: &Field| language().field_id_for_name(field.name());
    Field::ALL.iter().map(|field| number(field).map_or(0, u16::from)).collect()
});

impl Kind {
    /// The kind of a node; [`Kind::Other`] for keywords, operators and syntax errors.
    pub fn of(node: &Node<'_>) -> Kind {
        KINDS.get(usize::from(node.kind_id())).copied().unwrap_or(Kind::Other)
    }
}

/// Typed access to the kind and the fields of a node.
pub trait TypedNode<'t> {
    fn is(&self, kind: Kind) -> bool;

    /// Returns the child in a field.
    fn field(&self, field: Field) -> Option<Node<'t>>;
}

impl<'t> TypedNode<'t> for Node<'t> {
    fn is(&self, kind: Kind) -> bool {
        Kind::of(self) == kind
    }

    fn field(&self, field: Field) -> Option<Node<'t>> {
        self.child_by_field_id(*FIELDS.get(field as usize)?)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use expect_test::expect_file;

    use super::*;

    fn variant(name: &str) -> String {
        let words = name.split('_').map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        });
        words.collect()
    }

    /// Whether trees have visible named nodes with this kind id.
    fn is_shown(number: u16) -> bool {
        language().node_kind_is_named(number)
            && language().node_kind_is_visible(number)
            && !language().node_kind_is_supertype(number)
    }

    /// Generates `kinds.rs` from the grammar.
    fn generated() -> String {
        let names: BTreeSet<&str> = (0..language().node_kind_count() as u16)
            .filter(|number| is_shown(*number))
            .filter_map(|number| language().node_kind_for_id(number))
            .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()) && *name != "end")
            .collect();
        let fields: BTreeSet<&str> = (1..=language().field_count() as u16)
            .filter_map(|number| language().field_name_for_id(number))
            .collect();
        let mut text = "//! The node types of tree-sitter-python. Generated: `UPDATE_EXPECT=1 cargo test -p ridgeline-python kind`.\n\n\
             /// The kind of a syntax node.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub enum Kind {\n"
            .to_owned();
        for name in &names {
            let _ = writeln!(text, "    /// `{name}`\n    {},", variant(name));
        }
        text += "    /// A keyword, an operator, or a syntax error.\n    Other,\n}\n\nimpl Kind {\n    \
                 /// Returns the kind with this name.\n    pub(super) fn named(name: &str) -> Kind {\n        match name {\n";
        for name in &names {
            let _ = writeln!(text, "            \"{name}\" => Kind::{},", variant(name));
        }
        text += "            _ => Kind::Other,\n        }\n    }\n}\n\n\
                 /// A field of a node.\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub enum Field {\n";
        for name in &fields {
            let _ = writeln!(text, "    /// `{name}`\n    {},", variant(name));
        }
        let _ = writeln!(
            text,
            "}}\n\nimpl Field {{\n    /// All fields, in the order of the enum.\n    \
             pub(super) const ALL: [Field; {}] = [",
            fields.len()
        );
        for name in &fields {
            let _ = writeln!(text, "        Field::{},", variant(name));
        }
        text += "    ];\n\n    /// The name in the grammar.\n    pub(super) fn name(self) -> &'static str {\n        match self {\n";
        for name in &fields {
            let _ = writeln!(text, "            Field::{} => \"{name}\",", variant(name));
        }
        text += "        }\n    }\n}\n";
        text
    }

    #[test]
    fn kinds_match_the_grammar() {
        expect_file!["kinds.rs"].assert_eq(&generated());
    }

    #[test]
    fn every_name_has_an_id() {
        assert!(FIELDS.iter().all(|number| *number != 0));
        for number in 0..language().node_kind_count() as u16 {
            let name = language().node_kind_for_id(number).unwrap_or_default();
            let is_known = KINDS[usize::from(number)] != Kind::Other;
            assert!(is_known || !is_shown(number) || name == "ERROR" || name == "end", "{name}");
        }
    }
}
