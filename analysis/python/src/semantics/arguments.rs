//! Numbers from a command line: the defaults of argparse, click, typer and absl flags, and the
//! configured arguments that override them.

use crate::syntax::kind::{Kind, TypedNode as _};
use tree_sitter::Node;

use super::batch_names::is_batch_name;
use super::call_sites::Arguments;
use super::literal;
use super::module::Call;
use super::trace::{Constant, Place, PossibleValues, Step, Tracer};

/// Calls that declare an option of a parser.
const DECLARING_CALLS: [&str; 3] = ["add_argument", "add_arg", "add"];

/// The value of the option that the program reads as `name`: the configured argument, or the
/// default. Returns `None` if no such option is declared.
pub(super) fn option(tracer: &Tracer<'_>, name: &str) -> Option<PossibleValues> {
    let mut found: Option<PossibleValues> = None;
    for (module, text) in tracer.modules.iter().enumerate() {
        for call in text.calls.iter().filter(|call| DECLARING_CALLS.contains(&call.name())) {
            let Some(declaration) = OptionDeclaration::read(tracer, module, call) else { continue };
            if declaration.name != name {
                continue;
            }
            let default = declaration.default(tracer);
            found = Some(found.map_or(default.clone(), |before| before.or(default)));
        }
    }
    found
}

/// One `add_argument`.
struct OptionDeclaration {
    name: String,
    options: Vec<String>,
    action: Option<String>,
    default: Option<Place>,
}

impl OptionDeclaration {
    fn read(tracer: &Tracer<'_>, module: usize, call: &Call) -> Option<OptionDeclaration> {
        let text = &tracer.modules[module];
        let place = Place { module, span: call.span.clone() };
        let arguments = Arguments::of(tracer, &place)?;
        let string = |node: Node<'_>| literal::string(text, node);
        let options: Vec<String> =
            arguments.positional.iter().filter_map(|node| string(*node)).collect();
        let first_long = options.iter().find(|option| option.starts_with("--"));
        let named = first_long.or(options.first())?;
        let name = named.trim_start_matches('-').replace('-', "_");
        let name = arguments.named("dest").and_then(string).unwrap_or(name);
        let place_of = |node: Node<'_>| Place { module, span: node.byte_range() };
        Some(OptionDeclaration {
            name,
            action: arguments.named("action").and_then(string),
            default: arguments.named("default").map(place_of),
            options,
        })
    }

    fn default(&self, tracer: &Tracer<'_>) -> PossibleValues {
        if let Some(found) = configured(tracer, &self.options) {
            return match self.action.as_deref() {
                Some("store_true") => PossibleValues::constant(Constant::Truth(true)),
                Some("store_false") => PossibleValues::constant(Constant::Truth(false)),
                _ => found,
            };
        }
        match (&self.default, self.action.as_deref()) {
            (Some(default), _) => text_as_number(tracer, default),
            (None, Some("store_true")) => PossibleValues::constant(Constant::Truth(false)),
            (None, Some("store_false")) => PossibleValues::constant(Constant::Truth(true)),
            (None, _) => PossibleValues::constant(Constant::Nothing),
        }
    }
}

/// A default may be a string that the parser converts to a number: `default="32"`.
fn text_as_number(tracer: &Tracer<'_>, place: &Place) -> PossibleValues {
    let module = &tracer.modules[place.module];
    let node = module.node(&place.span);
    let number = node.filter(|node| node.is(Kind::String)).and_then(|node| {
        let content = super::gather::named_children(node)
            .into_iter()
            .find(|child| child.is(Kind::StringContent))?;
        let value = literal::whole(module.text(&content.byte_range()))?;
        Some((content.byte_range(), value))
    });
    match number {
        Some((span, value)) => {
            let text = super::trace::one_line(module.text(&place.span));
            let number = super::trace::Number::new(module, span, value, text);
            PossibleValues { numbers: vec![number], ..PossibleValues::default() }
        }
        None => tracer.trace(place, &[]),
    }
}

/// The configured argument for an option. An edit of the program cannot change it, so a number is
/// returned as a doubt.
fn configured(tracer: &Tracer<'_>, options: &[String]) -> Option<PossibleValues> {
    let arguments = &tracer.entry.arguments;
    for (at, argument) in arguments.iter().enumerate() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), arguments.get(at + 1).cloned()),
        };
        let is_it = options.iter().any(|option| {
            // argparse accepts prefixes of long options.
            option == name || (name.starts_with("--") && name.len() > 3 && option.starts_with(name))
        });
        let attached = options.iter().find(|option| {
            option.len() == 2
                && !argument.starts_with("--")
                && argument.len() > 2
                && argument.starts_with(option.as_str())
        });
        let value = match (is_it, attached) {
            (true, _) => value.unwrap_or_default(),
            (false, Some(_)) => argument[2..].trim_start_matches('=').to_owned(),
            _ => continue,
        };
        let message = format!(
            "the configuration's arguments set {} to {value}: change it there",
            name_of(argument)
        );
        let refusal = super::Refusal { message, at: None };
        let mut found = PossibleValues::doubt(refusal);
        if literal::whole(&value).is_none() {
            found = PossibleValues::constant(Constant::Text(value));
        }
        return Some(found);
    }
    None
}

fn name_of(argument: &str) -> &str {
    argument.split('=').next().unwrap_or(argument)
}

/// A configured argument that sets a batch size in a program with its own argument parser
/// (`--batch_size=32` of nanoGPT, `batch_size=32` of Hydra).
pub fn given_by_name(tracer: &Tracer<'_>) -> Option<super::Refusal> {
    let arguments = &tracer.entry.arguments;
    let (at, argument) = arguments.iter().enumerate().find(|(_, argument)| {
        let name = name_of(argument).trim_start_matches('-');
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_option = argument.starts_with("--") || argument.contains('=');
        is_option && is_batch_name(last) && last.len() > 2
    })?;
    let value = argument.split_once('=').map(|(_, value)| value);
    let value = value.or(arguments.get(at + 1).map(String::as_str)).unwrap_or("something");
    let message = format!(
        "the configuration's arguments set {} to {value}: change it there",
        name_of(argument)
    );
    Some(super::Refusal { message, at: None })
}

/// Well-known global objects of libraries: absl's `FLAGS`.
pub(super) fn well_known(tracer: &Tracer<'_>, name: &str, path: &[Step]) -> Option<PossibleValues> {
    let [Step::Key(key), rest @ ..] = path else { return None };
    (name == "FLAGS" && rest.is_empty()).then(|| flag(tracer, key))?
}

/// The default of an absl flag.
pub(super) fn flag(tracer: &Tracer<'_>, name: &str) -> Option<PossibleValues> {
    for (module, text) in tracer.modules.iter().enumerate() {
        for call in text.calls.iter().filter(|call| call.name().starts_with("DEFINE_")) {
            let place = Place { module, span: call.span.clone() };
            let arguments = Arguments::of(tracer, &place)?;
            let is_it = arguments
                .positional
                .first()
                .and_then(|node| literal::string(text, *node))
                .is_some_and(|declaration| declaration == name);
            let default = arguments.positional.get(1).copied().or(arguments.named("default"));
            if let (true, Some(default)) = (is_it, default) {
                let options = [format!("--{name}"), format!("-{name}")];
                return Some(match configured(tracer, &options) {
                    Some(found) => found,
                    None => tracer.part(&place, default, &[]),
                });
            }
        }
    }
    None
}

/// The default of a parameter that a decorator declares: `@click.option("--batch-size",
/// default=32)`.
pub(super) fn decorated(
    tracer: &Tracer<'_>,
    module: usize,
    function: usize,
    parameter: &str,
) -> Option<PossibleValues> {
    let text = &tracer.modules[module];
    for decorator in &text.functions[function].decorators {
        let place = Place { module, span: decorator.clone() };
        let Some(arguments) = Arguments::of(tracer, &place) else { continue };
        let options: Vec<String> =
            arguments.positional.iter().filter_map(|node| literal::string(text, *node)).collect();
        let names = |option: &String| option.trim_start_matches('-').replace('-', "_") == parameter;
        if !options.iter().any(names) {
            continue;
        }
        if let Some(found) = configured(tracer, &options) {
            return Some(found);
        }
        let default = arguments.named("default")?;
        return Some(tracer.part(&place, default, &[]));
    }
    // Options that typer and fire derive from the name of a parameter.
    let option = format!("--{}", parameter.replace('_', "-"));
    let other = format!("--{parameter}");
    configured(tracer, &[option, other]).filter(|found| !found.doubts.is_empty())
}
