//! Members of objects: parameters, class fields, constructor arguments, dictionaries.

use super::call_sites::{Arguments, CallSite, argument, calls_of};
use super::functions::{Callable, callable};
use super::module::{Assignment, Span};
use super::trace::{Place, PossibleValues, Step, Tracer};
use super::{arguments, config_file};
use crate::syntax::kind::{Field, Kind, TypedNode as _};

/// The maximum number of calls or constructions that are followed for one function or class.
const MAX_SITES: usize = 24;

/// The possible values of a parameter: from the calls of its function, its default, or a decorator.
pub(super) fn parameter(
    tracer: &Tracer<'_>,
    module: usize,
    function: usize,
    name: &str,
    path: &[Step],
) -> PossibleValues {
    let text = &tracer.modules[module];
    let one = &text.functions[function];
    let mut parameters = one.parameters.iter().enumerate();
    let Some((at, parameter)) = parameters.find(|(_, parameter)| parameter.name == name) else {
        return PossibleValues::default();
    };
    let is_static = one.decorators.iter().any(|span| text.text(span) == "staticmethod");
    let is_method = one.class.is_some() && !is_static;
    if let (true, Some(class), true) = (is_method, one.class, at == 0) {
        return of_class(tracer, module, class, None, path);
    }
    if path.is_empty()
        && let Some(found) = arguments::decorated(tracer, module, function, name)
    {
        return found;
    }
    if let Some(found) = config_file::of_hydra(tracer, module, function, at, path) {
        return found;
    }
    let position = at.checked_sub(usize::from(is_method)).filter(|_| !parameter.by_name);
    let default = parameter.default.clone().map(|span| Place { module, span });
    let site = tracer.site_of((module, function));
    let sites = match site {
        Some(site) => vec![site],
        None => match one.class.filter(|_| one.name == "__init__") {
            Some(class) => constructions(tracer, module, class),
            None => calls_of(tracer, module, &one.name),
        },
    };
    let mut found = PossibleValues::default();
    let mut is_omitted = sites.is_empty();
    for site in sites.iter().take(MAX_SITES) {
        // A recursive call adds nothing.
        if site.place.module == module && one.span.contains(&site.place.span.start) {
            continue;
        }
        match argument(tracer, site, name, position, path) {
            Some(given) => found = found.or(given),
            None => is_omitted = true,
        }
    }
    // `def loaders(**kwargs)`, then `kwargs["batch_size"]`.
    if parameter.is_rest
        && let [Step::Key(key), rest @ ..] = path
    {
        for site in sites.iter().take(MAX_SITES) {
            if let Some(given) = argument(tracer, site, key, None, rest) {
                found = found.or(given);
            }
        }
        return found;
    }
    if is_omitted || found.is_empty() {
        if let Some(default) = &default {
            found = found.or(tracer.trace(default, path));
        } else if let (Some(annotation), [Step::Key(_), ..]) = (&parameter.annotation, path) {
            found = found.or(of_annotation(tracer, module, annotation, path));
        }
    }
    if found.is_empty() && found.doubts.is_empty() {
        let place = Place { module, span: one.span.clone() };
        return tracer.doubt(
            &place,
            format!(
                "has a parameter `{name}`, but no call that sets it \
            was found"
            ),
        );
    }
    found
}

/// A member of an object of which only the class is known, from an annotation.
fn of_annotation(
    tracer: &Tracer<'_>,
    module: usize,
    annotation: &Span,
    path: &[Step],
) -> PossibleValues {
    let place = Place { module, span: annotation.clone() };
    let written = tracer.modules[module].text(annotation).trim_matches(['"', '\'']);
    match callable(tracer, &place, written) {
        Some(Callable::Class(module, class)) => of_class(tracer, module, class, None, path),
        _ => PossibleValues::default(),
    }
}

/// The constructions of a class.
fn constructions(tracer: &Tracer<'_>, module: usize, class: usize) -> Vec<CallSite> {
    calls_of(tracer, module, &tracer.modules[module].classes[class].name)
}

/// A member of an instance of a class; `site` is the call that created it, if known.
pub(super) fn of_class(
    tracer: &Tracer<'_>,
    module: usize,
    class: usize,
    site: Option<&CallSite>,
    path: &[Step],
) -> PossibleValues {
    let text = &tracer.modules[module];
    let [Step::Key(name), rest @ ..] = path else {
        return match path {
            [Step::Batch, ..] => of_loader_class(tracer, module, class, site),
            _ => PossibleValues::default(),
        };
    };
    // `self.hparams.batch_size` of Lightning, and a stored argparse namespace.
    if name == "hparams"
        && let [Step::Key(key), inner @ ..] = rest
    {
        return constructor_parameter(tracer, module, class, site, key, inner)
            .unwrap_or_else(|| of_class(tracer, module, class, site, rest));
    }
    // Enumerations and nested classes: `class train: batch_size = 32`.
    let mut found: Option<PossibleValues> = None;
    let mut chain = vec![(module, class)];
    chain.extend(bases(tracer, module, class));
    for (module, class) in &chain {
        let text = &tracer.modules[*module];
        let target = format!("self.{name}");
        let in_methods = |one: &&Assignment| {
            one.target == target
                && one.function.is_some_and(|at| text.functions[at].class == Some(*class))
        };
        for one in text.assignments.iter().filter(in_methods).take(8) {
            let decided = one.branches.iter().map(|branch| tracer.branch_holds(*module, branch));
            if decided.into_iter().any(|holds| holds == Some(false)) {
                continue;
            }
            let place = Place { module: *module, span: one.value.clone() };
            let longer: Vec<Step> =
                one.element.map(Step::Element).into_iter().chain(rest.iter().cloned()).collect();
            let function = one.function.unwrap_or_default();
            let trace = || tracer.trace(&place, &longer);
            let is_constructor = text.functions[function].name == "__init__";
            let value = match site.filter(|_| is_constructor) {
                Some(site) => within_call(tracer, site, (*module, function), trace),
                None => trace(),
            };
            found = Some(found.map_or(value.clone(), |before| before.or(value)));
        }
        if found.is_some() {
            break;
        }
        let field = text.assignments.iter().rfind(|one| {
            one.class == Some(*class) && one.target == *name && one.function.is_none()
        });
        if let Some(field) = field {
            found = Some(of_field(tracer, *module, *class, field, site, name, rest));
            break;
        }
        let nested = text.classes.iter().position(|inner| {
            inner.name == *name
                && text.classes[*class].span.start < inner.span.start
                && inner.span.end <= text.classes[*class].span.end
        });
        if let Some(nested) = nested {
            found = Some(of_class(tracer, *module, nested, None, rest));
            break;
        }
        // A property, or a method whose result is wanted.
        if let Some(Callable::Function(module, function)) = method(tracer, *module, *class, name) {
            let mut given = PossibleValues::default();
            for value in &tracer.modules[module].functions[function].returns {
                given = given.or(tracer.trace(&Place { module, span: value.clone() }, rest));
            }
            found = Some(given);
            break;
        }
    }
    found.or_else(|| constructor_parameter(tracer, module, class, site, name, rest)).unwrap_or_else(
        || {
            let place = Place { module, span: text.classes[class].span.clone() };
            tracer.doubt(&place, format!("has no `{name}` that is set in the project"))
        },
    )
}

/// A field: the constructor argument of a dataclass, or its default.
fn of_field(
    tracer: &Tracer<'_>,
    module: usize,
    class: usize,
    field: &Assignment,
    site: Option<&CallSite>,
    name: &str,
    path: &[Step],
) -> PossibleValues {
    let text = &tracer.modules[module];
    let has_constructor = text.function("__init__", Some(class)).is_some();
    let sites = match site {
        Some(site) => vec![site.clone()],
        None => constructions(tracer, module, class),
    };
    let mut found = PossibleValues::default();
    let mut is_omitted = sites.is_empty();
    if field.annotation.is_some() && !has_constructor {
        let fields = text
            .assignments
            .iter()
            .filter(|one| one.class == Some(class) && one.annotation.is_some());
        let position = fields.map(|one| &one.target).position(|target| target == name);
        for site in sites.iter().take(MAX_SITES) {
            match argument(tracer, site, name, position, path) {
                Some(given) => found = found.or(given),
                None => is_omitted = true,
            }
        }
    } else {
        is_omitted = true;
    }
    if is_omitted && !field.value.is_empty() {
        let place = Place { module, span: field.value.clone() };
        found = found.or(default_of_field(tracer, &place, path));
    } else if is_omitted && let Some(annotation) = &field.annotation {
        found = found.or(of_annotation(tracer, module, annotation, path));
    }
    found
}

/// `field(default=32)`, `Field(32, ge=1)`, `field(default_factory=Training)`, or the value itself.
fn default_of_field(tracer: &Tracer<'_>, place: &Place, path: &[Step]) -> PossibleValues {
    let text = &tracer.modules[place.module];
    let Some(arguments) = Arguments::of(tracer, place) else { return tracer.trace(place, path) };
    let callee = text.node(&place.span).and_then(|node| node.field(Field::Function));
    let callee = callee.map_or("", |callee| text.text(&callee.byte_range()));
    let declares = ["field", "Field", "ib", "attrib", "Argument", "Option", "arg"];
    if !declares.contains(&super::module::last_name(callee)) {
        return tracer.trace(place, path);
    }
    if let Some(factory) = arguments.named("default_factory").or(arguments.named("factory")) {
        if factory.is(Kind::Lambda) {
            return factory
                .field(Field::Body)
                .map_or(PossibleValues::default(), |body| tracer.part(place, body, path));
        }
        let span = factory.byte_range();
        return of_annotation(tracer, place.module, &span, path);
    }
    let default = arguments.named("default").or(arguments.positional.first().copied());
    default.map_or(PossibleValues::default(), |default| tracer.part(place, default, path))
}

/// The constructor parameter with this name.
fn constructor_parameter(
    tracer: &Tracer<'_>,
    module: usize,
    class: usize,
    site: Option<&CallSite>,
    name: &str,
    path: &[Step],
) -> Option<PossibleValues> {
    let Some(Callable::Function(module, function)) = method(tracer, module, class, "__init__")
    else {
        return None;
    };
    let parameters = &tracer.modules[module].functions[function].parameters;
    parameters.iter().find(|parameter| parameter.name == name)?;
    let trace = || parameter(tracer, module, function, name, path);
    Some(match site {
        Some(site) => within_call(tracer, site, (module, function), trace),
        None => trace(),
    })
}

/// A loader that is a class of the project: the constructor argument for the batch size.
fn of_loader_class(
    tracer: &Tracer<'_>,
    module: usize,
    class: usize,
    site: Option<&CallSite>,
) -> PossibleValues {
    let constructor = method(tracer, module, class, "__init__");
    if let Some(Callable::Function(of, function)) = constructor {
        let parameters = &tracer.modules[of].functions[function].parameters;
        let named = parameters.iter().find(|one| super::batch_names::may_be_batch_name(&one.name));
        // `DataLoaderLite(B=16, T=1024)`
        let named = named.or_else(|| parameters.iter().find(|one| one.name == "B"));
        if let Some(name) = named.map(|one| one.name.clone())
            && let Some(found) = constructor_parameter(tracer, module, class, site, &name, &[])
        {
            return found;
        }
    }
    // It holds a loader, or iterates over one.
    let text = &tracer.modules[module];
    let own = |at: Option<usize>| at.is_some_and(|at| text.functions[at].class == Some(class));
    let loops = text.loops.iter().filter(|one| own(one.function));
    let iterables: Vec<Span> = loops.filter_map(|one| one.iterable.clone()).collect();
    for span in iterables {
        let place = Place { module, span };
        let found = tracer.trace(&place, &[Step::Batch]);
        if !found.numbers.is_empty() {
            return found;
        }
    }
    PossibleValues::default()
}

/// A method of a class, possibly inherited from another class of the project.
pub(super) fn method(
    tracer: &Tracer<'_>,
    module: usize,
    class: usize,
    name: &str,
) -> Option<Callable> {
    let own = |module: usize, class: usize| {
        let at = tracer.modules[module].function(name, Some(class))?;
        Some(Callable::Function(module, at))
    };
    own(module, class).or_else(|| {
        bases(tracer, module, class).into_iter().find_map(|(module, class)| own(module, class))
    })
}

/// The base classes of a class that belong to the project.
fn bases(tracer: &Tracer<'_>, module: usize, class: usize) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = Vec::new();
    let mut next = vec![(module, class)];
    while let Some((module, class)) = next.pop() {
        let text = &tracer.modules[module];
        for base in text.classes[class].bases.iter().take(8) {
            let place = Place { module, span: base.clone() };
            let written = text.text(base).to_owned();
            if let Some(Callable::Class(module, class)) = callable(tracer, &place, &written)
                && !all.contains(&(module, class))
                && all.len() < 16
            {
                all.push((module, class));
                next.push((module, class));
            }
        }
    }
    all
}

/// The class of the object that a dotted name means, from an assignment or the annotation of a
/// parameter.
pub(super) fn class_of(tracer: &Tracer<'_>, place: &Place, name: &str) -> Option<(usize, usize)> {
    tracer.deeper(|| own_class_of(tracer, place, name)).flatten()
}

fn own_class_of(tracer: &Tracer<'_>, place: &Place, name: &str) -> Option<(usize, usize)> {
    let text = &tracer.modules[place.module];
    if name == "self" || name == "cls" {
        return text.class_at(place.span.start).map(|class| (place.module, class));
    }
    let class = |written: &str, module: usize| match callable(
        tracer,
        &Place { module, span: place.span.clone() },
        written,
    ) {
        Some(Callable::Class(module, class)) => Some((module, class)),
        _ => None,
    };
    if !name.contains('.')
        && let Some(found) = class(name, place.module)
    {
        return Some(found);
    }
    let assignment = text.assignments.iter().rfind(|one| one.target == name);
    let called = assignment.and_then(|one| {
        let node = text.node(&one.value).filter(|node| node.is(Kind::Call))?;
        let callee = text.text(&node.field(Field::Function)?.byte_range()).to_owned();
        (!callee.starts_with(name)).then_some(callee)
    });
    if let Some(found) = called.and_then(|callee| class(&callee, place.module)) {
        return Some(found);
    }
    let function = text.function_at(place.span.start)?;
    let parameter = text.functions[function].parameters.iter().find(|one| one.name == name)?;
    class(text.text(parameter.annotation.as_ref()?), place.module)
}

/// Traces with the parameters of a function bound to the arguments of one call.
pub(super) fn within_call(
    tracer: &Tracer<'_>,
    site: &CallSite,
    function: (usize, usize),
    trace: impl FnOnce() -> PossibleValues,
) -> PossibleValues {
    tracer.enter(function, site.clone());
    let found = trace();
    tracer.leave();
    found
}
