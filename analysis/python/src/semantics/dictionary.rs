//! Dictionaries as they are written.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::gather::named_children;
use super::trace::{Found, Place, Step, Tracer};
use super::{functions, literal};

/// A member of a dictionary as it is written.
pub(super) fn in_dictionary(
    tracer: &Tracer<'_>,
    place: &Place,
    node: Node<'_>,
    path: &[Step],
) -> Found {
    let module = &tracer.modules[place.module];
    let (wanted, rest) = match path {
        [Step::Key(key), rest @ ..] => (Some(key), rest),
        // `{"train": train_loader, "val": val_loader}`
        [Step::Batch, ..] => (None, path),
        _ => return Found::default(),
    };
    let mut found = Found::default();
    for child in named_children(node) {
        if child.is(Kind::DictionarySplat) {
            if let Some(inner) = named_children(child).first() {
                let of_other = tracer.part(place, *inner, path);
                if !of_other.is_empty() {
                    found = of_other;
                }
            }
            continue;
        }
        let (Some(key), Some(value)) = (child.field(Field::Key), child.field(Field::Value)) else {
            continue;
        };
        let key = match literal::string(module, key) {
            Some(key) => Some(key),
            None => functions::text_of(&tracer.part(place, key, &[])),
        };
        match wanted {
            Some(wanted) if key.as_ref() == Some(wanted) => {
                found = tracer.part(place, value, rest);
            }
            None if key.as_deref() == Some("train") => return tracer.part(place, value, rest),
            _ => {}
        }
    }
    found
}
