//! Finds the subcommands of a program: the words of which its command line needs one, such as the
//! `train` in `python main.py train`.

use std::collections::HashMap;

use tree_sitter::Node;

use super::declared_options::{advance, string};
use crate::syntax::index::SourceIndex;
use crate::syntax::kind::{Field, Kind, TypedNode as _};

/// The maximum number of subcommands of a file.
const MAX_SUBCOMMANDS: usize = 100;
/// The names of subcommands that train, the most exact first.
const TRAINING: [&str; 10] = [
    "train",
    "training",
    "fit",
    "train-model",
    "train_model",
    "pretrain",
    "finetune",
    "fine-tune",
    "fine_tune",
    "sft",
];

/// A subcommand of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subcommand {
    /// `train`.
    pub name: String,
    /// The arguments that choose it: `train`, or `--mode train`.
    pub arguments: Vec<String>,
    /// The line that declares it.
    pub line: u32,
}

/// Returns the subcommand that trains. `None` if the program has none, or several and none of them is called
/// `train`.
pub fn training_subcommand(index: &SourceIndex) -> Option<Subcommand> {
    let all = subcommands(index);
    TRAINING.iter().find_map(|name| all.iter().find(|one| one.name == *name)).cloned()
}

/// Returns the subcommands that a file declares, in the order of the file.
///
/// Recognizes `add_parser("train")` and required arguments with `choices` of argparse, `@app.command()` of click
/// groups and Typer, and the dictionary of `fire.Fire({"train": train})`. An argument with a default is not a
/// subcommand, because the program runs without it.
pub fn subcommands(index: &SourceIndex) -> Vec<Subcommand> {
    let (Some(tree), text) = (index.tree(), index.text()) else { return Vec::new() };
    let mut found: Vec<Subcommand> = Vec::new();
    if !["add_parser", "choices", ".command(", "Fire("].iter().any(|word| text.contains(word)) {
        return found;
    }
    let mut decorated: HashMap<&str, Vec<Subcommand>> = HashMap::new();
    let is_click = |owner: &str| matches!(owner, "click" | "rich_click");
    // The cursor walks without recursion: the nesting depth is unlimited.
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        match Kind::of(&node) {
            Kind::Call => found.extend(of_call(node, text)),
            Kind::DecoratedDefinition => {
                if let Some((owner, one)) = of_decorators(node, text)
                    && !is_click(owner)
                {
                    decorated.entry(owner).or_default().push(one);
                }
            }
            _ => {}
        }
        if found.len() >= MAX_SUBCOMMANDS || !advance(&mut cursor) {
            break;
        }
    }
    // A Typer application with a single command takes no name.
    let is_group = |all: &Vec<Subcommand>| all.len() > 1 || text.contains(".group(");
    found.extend(decorated.into_values().filter(is_group).flatten());
    found.sort_by_key(|one| one.line);
    found.truncate(MAX_SUBCOMMANDS);
    found
}

fn of_call(call: Node<'_>, text: &str) -> Vec<Subcommand> {
    let name = call.field(Field::Function).and_then(|it| text.get(it.byte_range()));
    let Some(arguments) = call.field(Field::Arguments) else { return Vec::new() };
    match name.and_then(|name| name.rsplit('.').next()) {
        Some("add_parser") => {
            let name = positional(arguments).first().and_then(|it| string(*it, text));
            name.map(|name| plain(name, call)).into_iter().collect()
        }
        Some("add_argument") => of_choices(call, arguments, text),
        Some("Fire") => {
            let dictionary = positional(arguments).first().copied();
            let dictionary = dictionary.filter(|it| it.is(Kind::Dictionary));
            let mut walk = call.walk();
            let pairs = dictionary.map(|it| it.named_children(&mut walk).collect::<Vec<_>>());
            let keys = pairs.into_iter().flatten().filter_map(|pair| {
                let key = pair.is(Kind::Pair).then(|| pair.field(Field::Key)).flatten()?;
                Some(plain(string(key, text)?, key))
            });
            keys.collect()
        }
        _ => Vec::new(),
    }
}

/// The choices of an argument that has to be given.
fn of_choices(call: Node<'_>, arguments: Node<'_>, text: &str) -> Vec<Subcommand> {
    let keyword = |name: &str| keyword(arguments, name, text);
    let names: Vec<&str> =
        positional(arguments).iter().filter_map(|it| string(*it, text)).collect();
    let is_option = names.iter().any(|name| name.starts_with('-'));
    let is_required = match is_option {
        true => keyword("required").is_some_and(|it| it.is(Kind::True)),
        false => keyword("nargs").is_none(),
    };
    let (Some(choices), None, true) = (keyword("choices"), keyword("default"), is_required) else {
        return Vec::new();
    };
    if !matches!(Kind::of(&choices), Kind::List | Kind::Tuple | Kind::Set) {
        return Vec::new();
    }
    let option = names.iter().find(|name| name.starts_with("--")).or(names.first());
    let option = option.filter(|_| is_option).map(|it| (*it).to_owned());
    let mut walk = choices.walk();
    let values = choices.named_children(&mut walk).filter_map(|it| string(it, text));
    values
        .map(|value| {
            let one = plain(value, call);
            let arguments = option.iter().cloned().chain(one.arguments.clone()).collect();
            Subcommand { arguments, ..one }
        })
        .collect()
}

/// The subcommand of a function below `@app.command()`, and the name of `app`.
fn of_decorators<'t>(definition: Node<'_>, text: &'t str) -> Option<(&'t str, Subcommand)> {
    let function = definition.field(Field::Definition)?;
    let name = text.get(function.field(Field::Name)?.byte_range())?;
    let mut walk = definition.walk();
    definition.named_children(&mut walk).filter(|it| it.is(Kind::Decorator)).find_map(|it| {
        let call = it.named_child(0)?;
        let (function, arguments) = match Kind::of(&call) {
            Kind::Call => (call.field(Field::Function)?, call.field(Field::Arguments)),
            _ => (call, None),
        };
        let (owner, "command") = text.get(function.byte_range())?.rsplit_once('.')? else {
            return None;
        };
        let given = arguments.and_then(|arguments| {
            let first = positional(arguments).first().copied();
            string(first.or_else(|| keyword(arguments, "name", text))?, text)
        });
        let name = given.map_or_else(|| name.replace('_', "-"), str::to_owned);
        Some((owner, plain(&name, definition)))
    })
}

fn plain(name: &str, declared_at: Node<'_>) -> Subcommand {
    let line = declared_at.start_position().row as u32 + 1;
    Subcommand { name: name.to_owned(), arguments: vec![name.to_owned()], line }
}

fn positional<'n>(arguments: Node<'n>) -> Vec<Node<'n>> {
    let mut walk = arguments.walk();
    let is_positional = |it: &Node<'_>| !it.is(Kind::KeywordArgument) && !it.is(Kind::Comment);
    arguments.named_children(&mut walk).filter(is_positional).collect()
}

fn keyword<'n>(arguments: Node<'n>, name: &str, text: &str) -> Option<Node<'n>> {
    let mut walk = arguments.walk();
    let mut all = arguments.named_children(&mut walk).filter(|it| it.is(Kind::KeywordArgument));
    let found = all.find(|it| {
        it.field(Field::Name).and_then(|it| text.get(it.byte_range())).is_some_and(|it| it == name)
    })?;
    found.field(Field::Value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, trains: &str) {
        let index = SourceIndex::new(text);
        let shown: Vec<String> = subcommands(&index)
            .iter()
            .map(|one| format!("{}: {}", one.line, one.arguments.join(" ")))
            .collect();
        assert_eq!(shown.join(", "), expected);
        let train = training_subcommand(&index).map(|one| one.arguments.join(" "));
        assert_eq!(train.unwrap_or_default(), trains);
    }

    #[test]
    fn argparse() {
        let parsers =
            "s = p.add_subparsers()\nt = s.add_parser('fit', help='x')\ns.add_parser(\"eval\")\n";
        check(parsers, "2: fit, 3: eval", "fit");
        check("p.add_argument('mode', choices=['train', 'test'])", "1: train, 1: test", "train");
        let option = "p.add_argument('-m', '--mode', required=True, choices=('test', 'train'))";
        check(option, "1: --mode test, 1: --mode train", "--mode train");
        check("p.add_argument('--mode', choices=['train', 'test'])", "", "");
        check("p.add_argument('mode', nargs='?', choices=['train'])", "", "");
        check("p.add_argument('mode', default='train', choices=['train'])", "", "");
        check("p.add_argument('mode', choices=MODES)", "", "");
        check("s.add_parser(name)", "", "");
    }

    #[test]
    fn click_and_typer() {
        let group = "@click.group()\ndef cli(): ...\n@cli.command()\n@click.option('--n')\ndef train_model(n): ...\n";
        check(group, "3: train-model", "train-model");
        let typer =
            "@app.command()\ndef train(): ...\n\n@app.command(name='test')\ndef evaluate(): ...\n";
        check(typer, "1: train, 4: test", "train");
        check("@app.command()\ndef train(): ...\n", "", "");
        check("@click.command()\ndef train(): ...\n", "", "");
        check(
            "@app.command\ndef one(): ...\n@app.command('two')\ndef x(): ...\n",
            "1: one, 3: two",
            "",
        );
    }

    #[test]
    fn fire() {
        check("fire.Fire({'train': train, \"eval\": f})", "1: train, 1: eval", "train");
        check("fire.Fire(main)", "", "");
        check("fire.Fire(", "", "");
    }
}
