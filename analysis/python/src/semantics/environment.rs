//! Numbers that an environment variable can override: `int(os.environ.get("BATCH", 32))`.

use super::call_sites::Arguments;
use super::literal;
use super::trace::{Place, PossibleValues, Tracer};
use crate::syntax::kind::{Kind, TypedNode as _};

/// The default of a variable that the configuration does not set.
pub(super) fn environment(
    tracer: &Tracer<'_>,
    place: &Place,
    arguments: &Arguments<'_>,
) -> PossibleValues {
    let module = &tracer.modules[place.module];
    let variable = arguments.positional.first().and_then(|node| literal::string(module, *node));
    let variable = variable.unwrap_or_else(|| "an environment variable".to_owned());
    if tracer.entry.environment.contains(&variable) {
        return tracer
            .doubt(place, format!("reads it from {variable}, which the configuration sets"));
    }
    let default = arguments.positional.get(1).copied().or(arguments.named("default"));
    let Some(default) = default else {
        return tracer.doubt(place, format!("reads it from the environment variable {variable}"));
    };
    let inner = super::gather::named_children(default)
        .into_iter()
        .find(|child| child.is(Kind::StringContent));
    match inner.and_then(|inner| Some((inner, literal::whole(module.text(&inner.byte_range()))?))) {
        Some((inner, value)) => {
            let mut found = tracer.number(place, default, default);
            let text = super::trace::one_line(module.text(&place.span));
            let number = super::trace::Number::new(module, inner.byte_range(), value, text);
            found.numbers.push(number);
            found
        }
        None => tracer.part(place, default, &[]),
    }
}
