//! Arguments that the program wants and did not get, or got and does not know.

use super::{Advice, Seen, between, quoted};

/// Hydra's and OmegaConf's `???`.
pub(super) fn missing_setting(seen: &Seen) -> Option<Advice> {
    let name = "MissingMandatoryValue";
    let line = if seen.comes_from(&[name]) {
        seen.failure.message.lines().find(|line| line.contains("Missing mandatory value"))
    } else {
        seen.printed_line(&["MissingMandatoryValue: "])
    }?;
    let key = line.rsplit("value: ").next().unwrap_or_default().split_whitespace().next();
    let key = key.filter(|key| !key.contains("value")).unwrap_or("KEY");
    let how = seen.run.with_arguments(seen.reader, &format!("{key}=…"));
    seen.because(
        "missing-setting",
        format!("The program's configuration requires a value for {} (`???`). {how}.", quoted(key)),
    )
}

/// The program's own parser (argparse, click, typer, jsonargparse, absl) refused its arguments, printed why, and
/// exited with 2. absl exits with 1.
pub(super) fn usage(seen: &Seen) -> Option<Advice> {
    let by_parser =
        ["argparse.py", "click/", "typer/", "jsonargparse/", "tyro/", "absl/", "docopt"]
            .iter()
            .any(|parser| seen.raised_in().starts_with(parser));
    let is_refused = seen.run.error.exit_code == Some(2) || seen.raised_in().starts_with("absl/");
    if !seen.is_exit() || !is_refused || !by_parser {
        return None;
    }
    let error = usage_error(&seen.run.output)?;
    let missing = ["required", "Missing ", "expected one argument", "requires an argument"];
    if missing.iter().any(|text| error.contains(text)) {
        let wanted = wanted_option(error).unwrap_or("--option");
        let how = seen.run.with_arguments(seen.reader, &format!("{wanted} …"));
        return seen
            .because("missing-argument", format!("The program requires these arguments. {how}."));
    }
    let given = match seen.run.arguments.len() {
        0 => "It was run without arguments".to_owned(),
        _ => format!("It was run with {}", quoted(&seen.run.arguments.join(" "))),
    };
    let how = seen.run.with_arguments(seen.reader, "--option value");
    seen.because("wrong-argument", format!("The program rejected its arguments. {given}. {how}."))
}

/// What a parser said was wrong, without the program's name: `the following arguments are required: --dataset`.
pub(in crate::failure) fn usage_error(output: &[String]) -> Option<&str> {
    output
        .iter()
        .rev()
        .find_map(|line| {
            let (before, said) = line.split_once("rror: ")?;
            // `train.py: error: …`, `Error: …` of click; `RuntimeError: …` is an exception.
            let is_usage = before.ends_with(": e") || before == "E";
            is_usage.then(|| said.trim()).filter(|said| !said.is_empty())
        })
        .or_else(|| {
            // Typer and rich-click draw a box with the title `Error`.
            let missing =
                ["Missing option ", "Missing argument ", "No such option", "Invalid value for "];
            let line =
                output.iter().rev().find(|line| missing.iter().any(|text| line.starts_with(text)));
            line.map(|line| line.trim())
        })
}

/// The first option that the message names.
fn wanted_option(error: &str) -> Option<&str> {
    let word = error
        .split([' ', ',', '\'', '"', '/', '='])
        .find(|word| word.starts_with('-') && word.len() > 1);
    word.map(|word| word.trim_end_matches([':', '.', ';']))
        .or_else(|| between(error, "are required: ", ",").filter(|name| !name.contains(' ')))
}
