//! Missing, unknown and invalid program arguments.

use super::{Advice, Failed, between, quoted};

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
/// printed why, and exited with code 2. absl exits with code 1.
pub(super) fn usage(failed: &Failed) -> Option<Advice> {
    let by_parser =
        ["argparse.py", "click/", "typer/", "jsonargparse/", "tyro/", "absl/", "docopt"]
            .iter()
            .any(|parser| failed.raised_in().starts_with(parser));
    let is_rejected =
        failed.run.error.exit_code == Some(2) || failed.raised_in().starts_with("absl/");
    if !failed.is_exit() || !is_rejected || !by_parser {
        return None;
    }
    let error = usage_error(&failed.run.output)?;
    let missing = ["required", "Missing ", "expected one argument", "requires an argument"];
    if missing.iter().any(|text| error.contains(text)) {
        let option = first_option(error).unwrap_or("--option");
        let how = failed.run.with_arguments(failed.reader, &format!("{option} …"));
        return failed
            .because("missing-argument", format!("The program requires these arguments. {how}."));
    }
    let given = match failed.run.arguments.len() {
        0 => "It was run without arguments".to_owned(),
        _ => format!("It was run with {}", quoted(&failed.run.arguments.join(" "))),
    };
    let how = failed.run.with_arguments(failed.reader, "--option value");
    failed.because("wrong-argument", format!("The program rejected its arguments. {given}. {how}."))
}

/// The error of an argument parser, without the program's name: `the following arguments are
/// required: --dataset`.
pub(in crate::failure) fn usage_error(output: &[String]) -> Option<&str> {
    output
        .iter()
        .rev()
        .find_map(|line| {
            let (before, error) = line.split_once("rror: ")?;
            // `train.py: error: …`, or `Error: …` from click; `RuntimeError: …` is an exception.
            let is_usage = before.ends_with(": e") || before == "E";
            is_usage.then(|| error.trim()).filter(|error| !error.is_empty())
        })
        .or_else(|| {
            // Typer and rich-click print the error in a box titled `Error`.
            let missing =
                ["Missing option ", "Missing argument ", "No such option", "Invalid value for "];
            let line =
                output.iter().rev().find(|line| missing.iter().any(|text| line.starts_with(text)));
            line.map(|line| line.trim())
        })
}

/// The first option named in the message.
fn first_option(error: &str) -> Option<&str> {
    let word = error
        .split([' ', ',', '\'', '"', '/', '='])
        .find(|word| word.starts_with('-') && word.len() > 1);
    word.map(|word| word.trim_end_matches([':', '.', ';']))
        .or_else(|| between(error, "are required: ", ",").filter(|name| !name.contains(' ')))
}
