//! Missing, unknown and invalid program arguments.

use ridgeline_python::DeclaredOption;

use super::{Advice, Failed, quoted};

/// A mandatory value of Hydra or OmegaConf (`???`) is missing.
pub(super) fn missing_setting(failed: &Failed) -> Option<Advice> {
    let name = "MissingMandatoryValue";
    let line = if failed.comes_from(&[name]) {
        failed.failure.message.lines().find(|line| line.contains("Missing mandatory value"))
    } else {
        failed.printed_line(&["MissingMandatoryValue: "])
    }?;
    let key = line.rsplit("value: ").next().unwrap_or_default().split_whitespace().next();
    let key = key.filter(|key| !key.contains("value")).unwrap_or("KEY");
    let how = failed.run.with_arguments(failed.reader, &format!("{key}=…"));
    failed.because(
        "missing-setting",
        format!("The program's configuration requires a value for {} (`???`). {how}.", quoted(key)),
    )
}

/// The program's own parser (argparse, click, typer, jsonargparse, absl) rejected its arguments,
/// printed why, and exited with code 2. absl exits with code 1. Or the program raised argparse's exception.
pub(super) fn usage(failed: &Failed) -> Option<Advice> {
    if failed.is(&["ArgumentError"]) {
        return rejected(failed, failed.failure.message.lines().next()?);
    }
    let by_parser =
        ["argparse.py", "click/", "typer/", "jsonargparse/", "tyro/", "absl/", "docopt"]
            .iter()
            .any(|parser| failed.raised_in().starts_with(parser));
    let is_rejected =
        failed.run.error.exit_code == Some(2) || failed.raised_in().starts_with("absl/");
    if !failed.is_exit() || !is_rejected || !by_parser {
        return None;
    }
    rejected(failed, &usage_error(&failed.run.output)?)
}

/// The parser's message says what is missing or wrong.
fn rejected(failed: &Failed, error: &str) -> Option<Advice> {
    let missing = [
        "required",
        "must be provided",
        "Missing ",
        "expected one argument",
        "requires an argument",
        "must have a value other than None",
    ];
    if missing.iter().any(|text| error.contains(text)) {
        let option = first_option(error).unwrap_or("--option");
        let how = failed.run.with_arguments(failed.reader, &format!("{option} …"));
        return failed.because(
            "missing-argument",
            format!("The program requires these arguments. {how}.{}", known_commands(failed)),
        );
    }
    let given = match failed.run.arguments.len() {
        0 => "It was run without arguments".to_owned(),
        _ => format!("It was run with {}", quoted(&failed.run.arguments.join(" "))),
    };
    let rejected = first_option(error).unwrap_or_default();
    let similar = declared_as(failed, rejected).map_or_else(String::new, |name| {
        format!(" Its option is called {}, not {}.", quoted(name), quoted(rejected))
    });
    let how = failed.run.with_arguments(failed.reader, "--option value");
    let known = known_commands(failed);
    failed.because(
        "wrong-argument",
        format!("The program rejected its arguments. {given}.{similar} {how}.{known}"),
    )
}

/// The program reads an argument from `sys.argv` itself, and it was not given.
pub(super) fn missing_position(failed: &Failed) -> Option<Advice> {
    let is_absent = failed.is(&["IndexError"])
        || failed.is(&["ValueError"]) && failed.message_contains(&["values to unpack"]);
    if !is_absent || !failed.run.source.contains("argv") {
        return None;
    }
    let how = failed.run.with_arguments(failed.reader, "VALUE");
    let line = quoted(failed.run.source.trim());
    let known = known_commands(failed);
    failed.because(
        "missing-argument",
        format!("The program takes arguments by position ({line}), and too few were given. {how}.{known}"),
    )
}

/// The program has subcommands, was run without one, and showed its help.
pub(super) fn subcommand(failed: &Failed) -> Option<Advice> {
    let shows_help = matches!(failed.run.error.exit_code, Some(0 | 2));
    let text = failed.run.with_subcommand(failed.reader).filter(|_| shows_help)?;
    failed.because("missing-argument", format!("{text}{}", known_commands(failed)))
}

/// The option that the program declares with other dashes or underscores: `-batch_size` for `--batch-size`.
fn declared_as<'f>(failed: &'f Failed, rejected: &str) -> Option<&'f str> {
    let plain = |name: &str| name.trim_start_matches('-').replace('_', "-").to_lowercase();
    let options = failed.run.options.iter().map(|option| option.name.as_str());
    options.into_iter().find(|name| *name != rejected && plain(name) == plain(rejected))
}

/// The message names an option of the program that has no value: `dataset_path is None`.
pub(super) fn unset_option(failed: &Failed) -> Option<Advice> {
    let types =
        ["ValueError", "AssertionError", "TypeError", "RuntimeError", "KeyError", "AttributeError"];
    if !failed.is(&types) {
        return None;
    }
    let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let message = failed.failure.message.lines().next().unwrap_or_default();
    let words: Vec<&str> = message.split(|c| !is_part_of_name(c)).collect();
    let has_none = message == "None" || message.contains("NoneType");
    let sources: Vec<&str> = failed.run.source.split(|c| !is_part_of_name(c) && c != '.').collect();
    let is_named = |option: &&DeclaredOption| {
        let name = option.name.trim_start_matches('-');
        // A short or plain name may be any word.
        let is_special = name.contains(['_', '-']);
        let is_named = is_special && words.contains(&name) || words.contains(&option.name.as_str());
        // `sizes[args.dataset]` with `KeyError: None`, or `args.dataset.startswith("u")`.
        let attribute = format!("args.{}", name.replace('-', "_"));
        let is_used = |source: &&str| {
            source
                .strip_prefix(&attribute)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        is_named || has_none && sources.iter().any(is_used)
    };
    let is_given = |option: &DeclaredOption| {
        failed.run.arguments.iter().any(|given| given.split('=').next() == Some(&option.name))
    };
    let mut options = failed.run.options.iter().filter(|it| it.default.is_none() && !is_given(it));
    let option = options.find(is_named)?;
    let how = failed.run.with_arguments(failed.reader, &format!("{} …", option.name));
    failed.because(
        "missing-argument",
        format!(
            "The program's option {} is not set. {how}.{}",
            quoted(&option.name),
            known_commands(failed)
        ),
    )
}

/// The commands of the project's own files, as sentences.
pub(super) fn known_commands(failed: &Failed) -> String {
    listed(&failed.run.commands)
}

/// Commands with their place, as sentences.
pub(super) fn listed(commands: &[String]) -> String {
    let one = |command: &String| {
        let (place, text) = command.split_once(": ").unwrap_or(("", command));
        format!(" {place} has {}.", quoted(text))
    };
    commands.iter().map(one).collect()
}

/// The error of an argument parser, without the program's name: `the following arguments are
/// required: --dataset`.
pub(in crate::failure) fn usage_error(output: &[String]) -> Option<String> {
    let of_usage = |line: &String| {
        let (before, error) = line.split_once("rror: ")?;
        // `train.py: error: …`, or `Error: …` from click; `RuntimeError: …` is an exception.
        // absl: `FATAL Flags parsing error: …`.
        let is_usage = [": e", "Flags parsing e"].iter().any(|end| before.ends_with(end));
        let is_usage = is_usage || before == "E";
        is_usage.then(|| error.trim().to_owned()).filter(|error| !error.is_empty())
    };
    output.iter().rev().find_map(of_usage).or_else(|| boxed_error(output))
}

/// The error in a box of Typer or rich-click, titled `Error`, or of tyro, titled with the kind of error.
fn boxed_error(output: &[String]) -> Option<String> {
    const BEGINNINGS: [&str; 6] = [
        "Missing option ",
        "Missing argument ",
        "Missing from ",
        "No such option",
        "Invalid value for ",
        "Unrecognized options",
    ];
    let begins = |line: &String| BEGINNINGS.iter().any(|text| line.trim_start().starts_with(text));
    let at = output.iter().rposition(begins)?;
    let line = output.get(at)?.trim();
    // tyro lists what is missing below: `Missing from train.py:`, `--out PATH`.
    let next = output.get(at + 1).filter(|_| line.ends_with(':'));
    Some(next.map_or_else(|| line.to_owned(), |next| format!("{line} {}", next.trim())))
}

/// The first option or argument named in the message.
fn first_option(error: &str) -> Option<&str> {
    let word = error
        .split([' ', ',', '\'', '"', '/', '='])
        .find(|word| word.starts_with('-') && word.len() > 1);
    word.map(|word| word.trim_end_matches([':', '.', ';'])).or_else(|| {
        // By position, as argparse and click name them.
        let name = match error.split_once("Missing argument '") {
            Some((_, name)) => name.split('\'').next(),
            None => error.split_once("are required: ")?.1.split(',').next(),
        };
        name.map(str::trim).filter(|it| !it.is_empty() && !it.contains(' '))
    })
}
