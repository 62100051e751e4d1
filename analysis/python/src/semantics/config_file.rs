//! Numbers in YAML, TOML and JSON files that a script reads.
//!
//! The file is found by the name that the script opens, the number by its keys. An edit replaces
//! only the bytes of the number, so comments and formatting stay.

use super::call_sites::Arguments;
use super::data_file::{self, Value};
use super::functions::text_of;
use super::literal;
use super::project::folder_of;
use super::trace::{Constant, Number, Place, PossibleValues, Step, Tracer};
use crate::syntax::kind::{Field, Kind, TypedNode as _};

/// Functions that read a settings file.
const READERS: [&str; 11] = [
    "load",
    "safe_load",
    "full_load",
    "unsafe_load",
    "loads",
    "load_config",
    "from_file",
    "fromfile",
    "load_yaml",
    "read_yaml",
    "load_toml",
];

/// The result of a call that reads a settings file. Returns `None` for other calls.
pub(super) fn loaded(
    tracer: &Tracer<'_>,
    place: &Place,
    name: &str,
    arguments: &Arguments<'_>,
    path: &[Step],
) -> Option<PossibleValues> {
    if !reads(name, path) {
        return None;
    }
    let first = arguments.positional.first().copied()?;
    let file = file_name(tracer, place, first, 0)?;
    Some(in_file(tracer, place, &file, path))
}

/// Whether a call by this name reads a settings file, of which `path` is a member.
pub(super) fn reads(name: &str, path: &[Step]) -> bool {
    READERS.contains(&name) && matches!(path.first(), Some(Step::Key(_)))
}

/// The name of the file that an expression opens, reads or contains.
fn file_name(
    tracer: &Tracer<'_>,
    place: &Place,
    node: tree_sitter::Node<'_>,
    depth: u32,
) -> Option<String> {
    let module = &tracer.modules[place.module];
    if depth > 8 {
        return None;
    }
    match Kind::of(&node) {
        Kind::String => literal::string(module, node),
        Kind::ParenthesizedExpression => {
            file_name(tracer, place, *super::gather::named_children(node).first()?, depth + 1)
        }
        Kind::BinaryOperator => {
            // `HERE / "config.yaml"`
            let left = node.field(Field::Left)?;
            let right = file_name(tracer, place, node.field(Field::Right)?, depth + 1)?;
            let folder = file_name(tracer, place, left, depth + 1);
            Some(folder.map_or(right.clone(), |folder| format!("{folder}/{right}")))
        }
        Kind::Attribute | Kind::Identifier => {
            // A file opened by an earlier statement: `with open("config.yaml") as file`.
            let written = module.text(&node.byte_range());
            let opened = module
                .assignments
                .iter()
                .rfind(|one| one.target == written && one.value.start <= node.start_byte());
            let opened = opened.and_then(|one| {
                let inner = module
                    .node(&one.value)
                    .filter(|inner| inner.is(Kind::Call) || inner.is(Kind::BinaryOperator))?;
                file_name(tracer, place, inner, depth + 1)
            });
            opened.or_else(|| text_of(&tracer.part(place, node, &[])))
        }
        Kind::Call => {
            let callee = node.field(Field::Function)?;
            let call = Place { module: place.module, span: node.byte_range() };
            let first = Arguments::of(tracer, &call)?.positional.first().copied();
            let object = callee.field(Field::Object);
            let name = callee.field(Field::Attribute).unwrap_or(callee);
            match (module.text(&name.byte_range()), object) {
                // `Path("config.yaml").read_text()`, `path.open()`, `file.read()`
                (
                    "read_text" | "read_bytes" | "read" | "resolve" | "absolute" | "expanduser",
                    Some(object),
                ) => file_name(tracer, place, object, depth + 1),
                ("open", Some(object))
                    if first.is_none_or(|first| {
                        literal::string(module, first).is_some_and(|mode| mode.len() <= 2)
                    }) =>
                {
                    file_name(tracer, place, object, depth + 1)
                }
                ("join", _) => {
                    let all = Arguments::of(tracer, &call)?.positional;
                    let parts: Vec<String> = all
                        .into_iter()
                        .filter_map(|part| file_name(tracer, place, part, depth + 1))
                        .collect();
                    (!parts.is_empty()).then(|| parts.join("/"))
                }
                ("with_name", _) => file_name(tracer, place, first?, depth + 1),
                ("open" | "Path" | "str" | "PurePath" | "abspath", _) => {
                    file_name(tracer, place, first?, depth + 1)
                }
                _ => text_of(&tracer.part(place, node, &[])),
            }
        }
        _ => None,
    }
}

/// A number in a file that the script names.
fn in_file(tracer: &Tracer<'_>, place: &Place, file: &str, path: &[Step]) -> PossibleValues {
    let module = &tracer.modules[place.module];
    let plain = file.trim_start_matches("./");
    if plain.starts_with('/') || plain.contains(':') {
        return tracer.doubt(place, format!("reads {file}, which is not in the project"));
    }
    let folders = [tracer.entry.working_directory.clone(), folder_of(&module.path), String::new()];
    let candidates = folders.iter().filter_map(|folder| inside(folder, plain));
    for candidate in candidates {
        if let Some(text) = tracer.project.text(&candidate) {
            return in_text(tracer, place, &candidate, &text, path);
        }
    }
    tracer.doubt(place, format!("reads {file}, which is not in the project"))
}

/// Joins paths below the root and resolves `..`.
fn inside(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn in_text(
    tracer: &Tracer<'_>,
    place: &Place,
    file: &str,
    text: &str,
    path: &[Step],
) -> PossibleValues {
    let mut keys = Vec::new();
    for step in path {
        match step {
            Step::Key(key) => keys.push(key.clone()),
            Step::Element(at) => keys.push(at.to_string()),
            Step::Batch => return PossibleValues::default(),
        }
    }
    // In Hydra and OmegaConf a value can refer to another one: `${train.batch_size}`.
    for _ in 0..8 {
        match data_file::find(file, text, &keys) {
            Ok(Some(Value::Number { span, value })) => {
                let line = 1 + text[..span.start].matches('\n').count();
                let last = keys.last().cloned().unwrap_or_default();
                let number = Number {
                    file: file.to_owned(),
                    line: u32::try_from(line).unwrap_or(u32::MAX),
                    text: format!("{last}: {}", &text[span.clone()]),
                    span,
                    value,
                    refusal: None,
                };
                return PossibleValues { numbers: vec![number], ..PossibleValues::default() };
            }
            Ok(Some(Value::Text(other))) => {
                let inner = other.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
                match inner {
                    Some(inner) if !inner.contains(':') => {
                        keys = inner.split('.').map(str::to_owned).collect();
                    }
                    _ => return PossibleValues::constant(Constant::Text(other)),
                }
            }
            Ok(Some(Value::Truth(truth))) => {
                return PossibleValues::constant(Constant::Truth(truth));
            }
            Ok(Some(Value::Nothing)) => return PossibleValues::constant(Constant::Nothing),
            Ok(None) => break,
            Err(reason) => {
                return tracer.doubt(place, format!("reads {file}, which {reason}"));
            }
        }
    }
    tracer.doubt(place, format!("reads {file}, which has no `{}`", keys.join(".")))
}

/// A member of the configuration that Hydra passes to its main function.
pub(super) fn of_hydra(
    tracer: &Tracer<'_>,
    module: usize,
    function: usize,
    parameter: usize,
    path: &[Step],
) -> Option<PossibleValues> {
    let text = &tracer.modules[module];
    let one = &text.functions[function];
    let decorator = one.decorators.iter().find(|span| {
        let written = text.text(span);
        written.starts_with("hydra.main") || written.starts_with("main(")
    })?;
    if parameter != 0 || !matches!(path.first(), Some(Step::Key(_))) {
        return None;
    }
    let place = Place { module, span: decorator.clone() };
    let arguments = Arguments::of(tracer, &place)?;
    let read = |name: &str, at: usize| {
        let node = arguments.named(name).or(arguments.positional.get(at).copied())?;
        literal::string(text, node)
    };
    let keys: Vec<String> = path
        .iter()
        .map_while(|step| match step {
            Step::Key(key) => Some(key.clone()),
            _ => None,
        })
        .collect();
    if let Some(refusal) = overridden(tracer, &keys) {
        return Some(PossibleValues::doubt(refusal));
    }
    let folder = inside(&folder_of(&text.path), &read("config_path", 0).unwrap_or_default());
    let folder = folder.unwrap_or_default();
    let name = read("config_name", 1)?;
    let file = match name.rsplit_once('.') {
        Some((_, "yaml" | "yml")) => name.clone(),
        _ => format!("{name}.yaml"),
    };
    let main = inside(&folder, &file)?;
    let Some(body) = tracer.project.text(&main) else {
        return Some(tracer.doubt(&place, format!("reads {main}, which does not exist")));
    };
    let own = in_text(tracer, &place, &main, &body, path);
    if !own.is_empty() {
        return Some(own);
    }
    // `defaults: [{train: base}]` puts `train/base.yaml` under `train`.
    if let Some((group, rest)) = keys.split_first()
        && let Ok(Some(Value::Text(choice))) =
            data_file::find(&main, &body, &["defaults".to_owned(), "*".to_owned(), group.clone()])
        && let Some(inner) = inside(&folder, &format!("{group}/{choice}.yaml"))
        && let Some(inner_text) = tracer.project.text(&inner)
    {
        let steps: Vec<Step> = rest.iter().cloned().map(Step::Key).collect();
        return Some(in_text(tracer, &place, &inner, &inner_text, &steps));
    }
    Some(own)
}

/// `train.batch_size=64` among the configured arguments.
fn overridden(tracer: &Tracer<'_>, keys: &[String]) -> Option<super::Refusal> {
    let dotted = keys.join(".");
    let argument = tracer.entry.arguments.iter().find(|argument| {
        argument.trim_start_matches('+').split_once('=').is_some_and(|(name, _)| name == dotted)
    })?;
    let message = format!("the configuration's arguments contain {argument}: change it there");
    Some(super::Refusal { message, at: None })
}
