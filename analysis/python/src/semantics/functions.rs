//! The results of calls: of the project's functions and classes, and of well-known ones.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::batch_names::{is_batch_name, may_be_batch_name};
use super::call_sites::{Arguments, CallSite, argument};
use super::module::last_name;
use super::trace::{Constant, Place, PossibleValues, Step, Tracer};
use super::{arguments, config_file, environment, literal, objects};

/// What a callee means, if it belongs to the project: module index and definition index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callable {
    Function(usize, usize),
    Class(usize, usize),
}

/// Calls that return their argument, or an object with the same attributes.
const TRANSPARENT: [&str; 26] = [
    "int",
    "float",
    "vars",
    "copy",
    "deepcopy",
    "list",
    "tuple",
    "iter",
    "cast",
    "dict",
    "AttrDict",
    "EasyDict",
    "edict",
    "Box",
    "DotMap",
    "Munch",
    "Namespace",
    "SimpleNamespace",
    "ConfigDict",
    "asdict",
    "to_container",
    "create",
    "DictConfig",
    "munchify",
    "Dict",
    "merge",
];

/// Parameters of other libraries' loaders that are a batch size.
const LOADER_KEYS: [&str; 7] = [
    "batch_size",
    "bs",
    "batch_sizes",
    "train_batch_size",
    "per_device_train_batch_size",
    "samples_per_gpu",
    "batchsize",
];

pub(super) fn call(
    tracer: &Tracer<'_>,
    place: &Place,
    node: Node<'_>,
    path: &[Step],
) -> PossibleValues {
    let module = &tracer.modules[place.module];
    let (Some(function), Some(arguments)) =
        (node.field(Field::Function), Arguments::of(tracer, place))
    else {
        return PossibleValues::default();
    };
    let callee: String =
        module.text(&function.byte_range()).chars().filter(|c| !c.is_whitespace()).collect();
    let name = last_name(&callee);
    let owner = function.field(Field::Object);
    let first = arguments.positional.first().copied();
    let text = |node: Option<Node<'_>>| node.and_then(|node| literal::string(module, node));

    if path.is_empty() && (name == "getenv" || callee.ends_with("environ.get")) {
        return environment::environment(tracer, place, &arguments);
    }
    // `getattr(args, "batch_size", 32)`, `config.get("batch_size", 32)`
    let looked_up = match (name, owner) {
        ("getattr", _) => first.zip(text(arguments.positional.get(1).copied())),
        ("get" | "pop" | "setdefault", Some(owner)) => Some(owner).zip(text(first)),
        _ => None,
    };
    if let Some((object, key)) = looked_up {
        let found = tracer.member(place, object, Step::Key(key), path);
        let position = if name == "getattr" { 2 } else { 1 };
        let default = arguments.positional.get(position).copied();
        return match default.filter(|_| found.is_empty()) {
            Some(default) => tracer.part(place, default, path),
            None => found,
        };
    }
    let own = callable(tracer, place, &callee);
    let parses = ["parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse"];
    if parses.contains(&name)
        && own.is_none()
        && let Some(found) = parsed(tracer, place, path)
    {
        return found;
    }
    // `typer.Option(32)` as the default of a parameter.
    if matches!(name, "Option" | "Argument") && path.is_empty() {
        let default = arguments.named("default").or(first);
        return default
            .map_or(PossibleValues::default(), |default| tracer.part(place, default, path));
    }
    if let Some(found) = config_file::loaded(tracer, place, name, &arguments, path) {
        return found;
    }
    if let Some(found) = constructed_by_a_parser(tracer, place, name, &arguments, path) {
        return found;
    }
    if let Some(own) = own {
        let found = called(tracer, place, own, path);
        if !found.numbers.is_empty() || !matches!(path.first(), Some(Step::Batch)) {
            return found;
        }
        // The project's own wrapper around a loader, or its own loader.
        return first_with_numbers(batch_argument(tracer, place, &arguments), || {
            first_with_numbers(through_arguments(tracer, place, &arguments, path), || {
                // `loader.next_batch()`
                let from_owner = owner.map(|owner| tracer.part(place, owner, path));
                from_owner.map_or(found.clone(), |from_owner| from_owner.or(found))
            })
        });
    }
    if config_file::reads(name, path) {
        return tracer.doubt(place, "reads it from a file that its code does not name".to_owned());
    }
    match path {
        [Step::Batch, ..] => loader(tracer, place, name, owner, &arguments, path),
        // `model, optimizer, loader = accelerator.prepare(model, optimizer, loader)`
        [Step::Element(at), rest @ ..] if rest.first() == Some(&Step::Batch) => {
            match arguments.positional.get(*at) {
                Some(same) if name == "prepare" || name.starts_with("setup") => {
                    tracer.part(place, *same, rest)
                }
                _ => loader(tracer, place, name, owner, &arguments, rest),
            }
        }
        // `dls.train` of a library's pair of loaders.
        [.., batch @ Step::Batch] => {
            loader(tracer, place, name, owner, &arguments, std::slice::from_ref(batch))
        }
        [Step::Key(key), rest @ ..]
            if TRANSPARENT.contains(&name) || arguments.named(key).is_some() =>
        {
            if let Some(value) = arguments.named(key) {
                return tracer.part(place, value, rest);
            }
            let others = arguments.positional.iter().chain(&arguments.splats);
            let found = others
                .rev()
                .map(|other| tracer.part(place, *other, path))
                .find(|found| !found.is_empty());
            found.unwrap_or_else(|| {
                tracer.doubt(place, format!("`{callee}` does not set `{key}` in its code"))
            })
        }
        _ if TRANSPARENT.contains(&name) || name == "parse_known_args" => match first {
            Some(first) => tracer.part(place, first, path),
            None => PossibleValues::default(),
        },
        _ => tracer.doubt(
            place,
            format!("gets the batch size from `{callee}(…)`, which is outside the project"),
        ),
    }
}

fn first_with_numbers(
    found: PossibleValues,
    other: impl FnOnce() -> PossibleValues,
) -> PossibleValues {
    if found.numbers.is_empty() { other() } else { found }
}

/// The result of a command-line parser.
fn parsed(tracer: &Tracer<'_>, place: &Place, path: &[Step]) -> Option<PossibleValues> {
    match path {
        [Step::Key(key)] => arguments::option(tracer, key),
        // `args, _ = parser.parse_known_args()`, and the dataclasses of transformers' parser.
        [Step::Element(at), member @ ..] => {
            let [Step::Key(key), rest @ ..] = member else { return None };
            arguments::option(tracer, key)
                .filter(|_| rest.is_empty())
                .or_else(|| parsed_dataclass(tracer, place, *at, member))
        }
        _ => None,
    }
}

/// One element of `HfArgumentParser((ModelArguments, TrainArguments))`.
fn parsed_dataclass(
    tracer: &Tracer<'_>,
    place: &Place,
    at: usize,
    path: &[Step],
) -> Option<PossibleValues> {
    let text = &tracer.modules[place.module];
    let parser = text.calls.iter().find(|call| call.name() == "HfArgumentParser")?;
    let parser_place = Place { module: place.module, span: parser.span.clone() };
    let arguments = Arguments::of(tracer, &parser_place)?;
    let classes = *arguments.positional.first()?;
    let class = match Kind::of(&classes) {
        Kind::Tuple | Kind::List => *super::gather::named_children(classes).get(at)?,
        _ => classes,
    };
    let name = text.text(&class.byte_range()).to_owned();
    class_member(tracer, place, &name, path)
}

/// `tyro.cli(Config)`, `parse(Config)`, `instantiate`: instances of a class with its defaults.
fn constructed_by_a_parser(
    tracer: &Tracer<'_>,
    place: &Place,
    name: &str,
    arguments: &Arguments<'_>,
    path: &[Step],
) -> Option<PossibleValues> {
    if !["cli", "parse", "structured", "ArgumentParser", "parse_into"].contains(&name) {
        return None;
    }
    let class = arguments.positional.first().copied().or(arguments.named("config_class"))?;
    let written = tracer.modules[place.module].text(&class.byte_range()).to_owned();
    class_member(tracer, place, &written, path)
}

fn class_member(
    tracer: &Tracer<'_>,
    place: &Place,
    class: &str,
    path: &[Step],
) -> Option<PossibleValues> {
    match callable(tracer, place, class)? {
        Callable::Class(module, class) => {
            Some(objects::of_class(tracer, module, class, None, path))
        }
        Callable::Function(..) => None,
    }
}

/// The project's function or class that a name means at a place.
pub fn callable(tracer: &Tracer<'_>, place: &Place, callee: &str) -> Option<Callable> {
    let text = &tracer.modules[place.module];
    let of = |module: usize, name: &str| {
        let text = &tracer.modules[module];
        let function = text.function(name, None).map(|at| Callable::Function(module, at));
        function.or_else(|| text.class(name).map(|at| Callable::Class(module, at)))
    };
    match callee.rsplit_once('.') {
        None => {
            if let Some(found) = of(place.module, callee) {
                return Some(found);
            }
            text.names.iter().find_map(|(here, from, there)| {
                if here == callee && !there.is_empty() {
                    return resolve_export(tracer, &text.path, from, there, 0);
                }
                (here == "*").then(|| resolve_export(tracer, &text.path, from, callee, 0))?
            })
        }
        Some((owner, name)) => {
            if let Some(module) = tracer.imported_module(place.module, owner) {
                return of(module, name).or_else(|| {
                    let names = &tracer.modules[module].names;
                    let (_, from, there) = names.iter().find(|(here, ..)| here == name)?;
                    resolve_export(tracer, &tracer.modules[module].path, from, there, 1)
                });
            }
            let (module, class) = objects::class_of(tracer, place, owner)?;
            objects::method(tracer, module, class, name)
        }
    }
}

/// Resolves a name of another module, including re-exports.
fn resolve_export(
    tracer: &Tracer<'_>,
    path: &str,
    from: &str,
    name: &str,
    depth: u32,
) -> Option<Callable> {
    let module = tracer.files.imported(path, from)?;
    let text = &tracer.modules[module];
    let function = text.function(name, None).map(|at| Callable::Function(module, at));
    let own = function.or_else(|| text.class(name).map(|at| Callable::Class(module, at)));
    own.or_else(|| {
        let next = text.names.iter().filter(|_| depth < 8);
        let mut next = next.filter(|(here, ..)| here == name || here == "*");
        next.find_map(|(here, from, there)| {
            let there = if here == "*" { name } else { there };
            resolve_export(tracer, &text.path, from, there, depth + 1)
        })
    })
}

/// The return value of the project's function, or the instance of its class.
fn called(tracer: &Tracer<'_>, place: &Place, callable: Callable, path: &[Step]) -> PossibleValues {
    let site = CallSite { place: place.clone(), handed: None };
    match callable {
        Callable::Class(module, class) => {
            objects::of_class(tracer, module, class, Some(&site), path)
        }
        Callable::Function(module, function) => {
            let text = &tracer.modules[module];
            let one = &text.functions[function];
            let mut found = PossibleValues::default();
            for value in &one.returns {
                let inner = Place { module, span: value.clone() };
                found = found.or(objects::within_call(tracer, &site, (module, function), || {
                    tracer.trace(&inner, path)
                }));
            }
            if found.numbers.is_empty() && matches!(path.first(), Some(Step::Batch)) {
                let by_name =
                    one.parameters.iter().enumerate().find(|(_, one)| is_batch_name(&one.name));
                if let Some((at, parameter)) = by_name {
                    let skipped = usize::from(one.class.is_some());
                    let position = at.checked_sub(skipped).filter(|_| !parameter.by_name);
                    let given = argument(tracer, &site, &parameter.name, position, &[]);
                    let default = parameter.default.clone().map(|span| Place { module, span });
                    return given.or_else(|| Some(tracer.trace(&default?, &[]))).unwrap_or(found);
                }
                return super::synthetic::first_created_size(tracer, module, function, &site)
                    .or(found);
            }
            found
        }
    }
}

/// The argument of a call whose name is that of a batch size.
fn batch_argument(tracer: &Tracer<'_>, place: &Place, arguments: &Arguments<'_>) -> PossibleValues {
    let named = arguments.by_name.iter().find(|(name, _)| may_be_batch_name(name));
    named.map_or(PossibleValues::default(), |(_, value)| tracer.part(place, *value, &[]))
}

/// For a wrapper: the first argument that leads to a loader.
fn through_arguments(
    tracer: &Tracer<'_>,
    place: &Place,
    arguments: &Arguments<'_>,
    path: &[Step],
) -> PossibleValues {
    let all = arguments.positional.iter().copied();
    let mut all = all.chain(arguments.by_name.iter().map(|(_, value)| *value));
    let kinds = ["identifier", "attribute", "call", "subscript", "list", "tuple"];
    let found = all
        .by_ref()
        .filter(|node| kinds.contains(&node.kind()))
        .take(8)
        .map(|node| tracer.part(place, node, path))
        .find(|found| !found.numbers.is_empty());
    found.unwrap_or_default()
}

/// A loader of PyTorch or another library, or a wrapper around one.
fn loader(
    tracer: &Tracer<'_>,
    place: &Place,
    name: &str,
    owner: Option<Node<'_>>,
    arguments: &Arguments<'_>,
    path: &[Step],
) -> PossibleValues {
    if name == "range" {
        // `for start in range(0, len(data), batch_size)`
        let step = arguments.positional.get(2).copied();
        let is_named = |node: &Node<'_>| {
            let text = tracer.modules[place.module].text(&node.byte_range());
            may_be_batch_name(last_name(text))
        };
        return step
            .filter(is_named)
            .map_or(PossibleValues::default(), |step| tracer.part(place, step, &[]));
    }
    for key in LOADER_KEYS {
        if let Some(value) = arguments.named(key).filter(|value| !value.is(Kind::None)) {
            return tracer.part(place, value, path.get(1..).unwrap_or_default());
        }
    }
    if let Some(sampler) = arguments.named("batch_sampler").filter(|node| !node.is(Kind::None)) {
        return tracer.part(place, sampler, path);
    }
    if name == "BatchSampler"
        && let Some(second) = arguments.positional.get(1)
    {
        return tracer.part(place, *second, &[]);
    }
    for splat in &arguments.splats {
        let found = tracer.member(place, *splat, Step::Key("batch_size".to_owned()), &[]);
        if !found.is_empty() {
            return found;
        }
    }
    if name.ends_with("DataLoader") {
        return match arguments.positional.get(1) {
            Some(second) => tracer.part(place, *second, &[]),
            None => tracer.doubt(
                place,
                format!("creates a {name} without batch_size, so the batch size is 1"),
            ),
        };
    }
    // `dataset.batch(32)`
    if matches!(name, "batch" | "batched")
        && let Some(size) = arguments.positional.first()
    {
        let found = tracer.part(place, *size, &[]);
        if !found.numbers.is_empty() {
            return found;
        }
    }
    let given = batch_argument(tracer, place, arguments);
    if !given.numbers.is_empty() {
        return given;
    }
    let found = through_arguments(tracer, place, arguments, path);
    if !found.numbers.is_empty() {
        return found;
    }
    // `loader.to(device)`, `dm.train_dataloader()` of an object that is itself a loader.
    match owner.filter(|owner| {
        !owner.is(Kind::Identifier)
            || tracer.modules[place.module].text(&owner.byte_range()) != "torch"
    }) {
        Some(owner) => tracer.part(place, owner, path),
        None => PossibleValues::default(),
    }
}

/// The first text among the constants.
pub(super) fn text_of(found: &PossibleValues) -> Option<String> {
    found.constants.iter().find_map(|constant| match constant {
        Constant::Text(text) => Some(text.clone()),
        _ => None,
    })
}
