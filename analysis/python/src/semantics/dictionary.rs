//! Dictionary literals.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::gather::named_children;
use super::trace::{Place, PossibleValues, Step, Tracer};
use super::{functions, literal};

/// A member of a dictionary literal.
pub(super) fn in_dictionary(
    tracer: &Tracer<'_>,
    place: &Place,
    node: Node<'_>,
    path: &[Step],
) -> PossibleValues {
    let module = &tracer.modules[place.module];
    let (wanted, rest) = match path {
        [Step::Key(key), rest @ ..] => (Some(key), rest),
        // `{"train": train_loader, "val": val_loader}`
        [Step::Batch, ..] => (None, path),
        _ => return PossibleValues::default(),
    };
    let mut found = PossibleValues::default();
    for child in named_children(node) {
        if child.is(Kind::DictionarySplat) {
            if let Some(inner) = named_children(child).first() {
                let from_splat = tracer.part(place, *inner, path);
                if !from_splat.is_empty() {
                    found = from_splat;
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
