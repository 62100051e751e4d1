//! Missing files, datasets and commands.

use ridgeline_python::DeclaredOption;

use super::arguments::listed;
use super::notebook;
use super::{Advice, Failed, Reader, RunFailure, between, quoted};

/// A command that the program starts is missing.
pub(super) fn missing_command(failed: &Failed) -> Option<Advice> {
    let is_command = failed.raised_in() == "subprocess.py" && failed.errno() == "ENOENT";
    let message = failed.failure.message.as_str();
    // pydot raises the error again: `[Errno 2] "dot" not found in path.`. The graphviz package: `failed to execute
    // PosixPath('dot'), make sure the Graphviz executables are on your systems' PATH`.
    let of_pydot = between(message, "\"", "\" not found in path");
    let of_graphviz = between(message, "failed to execute PosixPath('", "')");
    // A path may be the working directory for the command.
    let started = || failed.run.error.file.as_deref().filter(|_| is_command);
    let name = of_pydot.or(of_graphviz).or_else(started).filter(|name| !name.contains('/'))?;
    let what = if name == "dot" { " of Graphviz" } else { "" };
    failed.because(
        "missing-command",
        format!(
            "The program runs the command {}{what}, which is not installed here or not on PATH. Install \
            it, or run Ridgeline where it is on PATH.",
            quoted(name)
        ),
    )
}

/// A dataset of torchvision with `download=False` or of the Hub, or an `ImageFolder` without class
/// folders.
pub(super) fn missing_data_set(failed: &Failed) -> Option<Advice> {
    let is_torchvision =
        failed.is(&["RuntimeError"]) && failed.failure.message.starts_with("Dataset not found");
    let is_hub = failed.is(&["DatasetNotFoundError"]);
    let is_image_folder = failed.is(&["FileNotFoundError"])
        && failed.message_contains(&["Couldn't find any class folder in "]);
    if !(is_torchvision || is_hub || is_image_folder) {
        return None;
    }
    let text = if is_hub {
        "The dataset name is wrong, or the dataset is private and requires a login (`hf auth \
        login`)."
            .to_owned()
    } else if is_image_folder {
        format!(
            "The folder has no class subfolders, which `ImageFolder` needs. {}",
            how_to_provide_data(failed)
        )
    } else {
        let how = "Profiled runs do not keep files written to the project, so download the data \
            by running the program once without Ridgeline, or add the folder to `keep_writes` in \
            ridgeline.toml";
        format!("The dataset is missing, and the program is not allowed to download it. {how}.")
    };
    failed.because("missing-data-set", text)
}

/// Data that NLTK downloads on request.
pub(super) fn missing_nltk_data(failed: &Failed) -> Option<Advice> {
    let message = failed.failure.message.as_str();
    let name = between(message, "nltk.download('", "')").filter(|_| failed.is(&["LookupError"]))?;
    failed.because(
        "missing-data-set",
        format!(
            "NLTK's data {} is missing. Download it: `{} -m nltk.downloader {name}`.",
            quoted(name),
            failed.run.python
        ),
    )
}

/// The dataset has no samples.
pub(super) fn empty_data_set(failed: &Failed) -> Option<Advice> {
    let is_sampler_error = failed.is(&["ValueError"])
        && failed.message_contains(&[
            "num_samples should be a positive integer value, but got num_samples=0",
        ]);
    let is_folder_error =
        failed.message_contains(&["Found 0 files in subfolders of", "Found 0 images in"]);
    if !(is_sampler_error || is_folder_error) {
        return None;
    }
    failed.because(
        "empty-data-set",
        format!(
            "The dataset is empty: the program found no samples in its data folder. Relative paths \
            start at {}. {}",
            failed.run.looked_up_from(),
            how_to_provide_data(failed)
        ),
    )
}

/// Returns the path that the program did not find.
fn missing_path(failure: &RunFailure) -> Option<&str> {
    let error = &failure.run.error;
    let is_missing = failure.error_type.ends_with("FileNotFoundError")
        || error.errno.as_deref() == Some("ENOENT")
        || failure.error_type == "AssertionError" && error.file.is_some();
    if !is_missing {
        return None;
    }
    let message = failure.message.as_str();
    error
        .file
        .as_deref()
        .or_else(|| between(message, "directory: '", "'"))
        // HDF5.
        .or_else(|| between(message, "unable to open file: name = '", "'"))
}

/// The program writes a file into a folder that does not exist.
pub(super) fn missing_folder(failed: &Failed) -> Option<Advice> {
    let message = failed.failure.message.as_str();
    let of_torch = || between(message, "Parent directory ", " does not exist");
    let folder = match missing_path(failed.failure).filter(|_| writes(&failed.run.source)) {
        Some(file) => file.rsplit_once('/')?.0,
        None => of_torch().filter(|_| failed.is(&["RuntimeError"]))?,
    };
    let is_relative = !folder.starts_with(['/', '…', '~']);
    let from = match failed.run.working_directory.as_str() {
        "" | "." => String::new(),
        start if is_relative => format!("{start}/"),
        _ => String::new(),
    };
    let path = format!("{from}{}", folder.trim_start_matches("./"));
    failed.because(
        "missing-folder",
        format!(
            "The program writes into the folder {}, which does not exist. Create it: {}.",
            quoted(folder),
            quoted(&format!("mkdir -p {path}"))
        ),
    )
}

/// Whether a line of source writes a file.
fn writes(source: &str) -> bool {
    const CALLS: [&str; 11] = [
        "save(",
        "savefig(",
        "savez(",
        "savetxt(",
        "save_image(",
        "save_gif",
        "save_pretrained(",
        "imsave(",
        "to_csv(",
        "FileHandler(",
        "write_text(",
    ];
    let opens = source.contains("open(")
        && ["'w", "\"w", "'a'", "\"a\"", "'a+", "\"a+"].iter().any(|mode| source.contains(mode));
    opens || CALLS.iter().any(|call| source.contains(call))
}

/// The file does not exist where the program looks for it.
pub(super) fn missing_file(failed: &Failed) -> Option<Advice> {
    let name = missing_path(failed.failure)?;
    let of_notebook = notebook::commands_that_name(failed, name.rsplit('/').next().unwrap_or(name));
    if !of_notebook.is_empty() {
        return failed.because(
            "missing-file",
            format!(
                "The file {} does not exist. The notebook gets it with shell commands, which a run skips. Run them \
                once in {}:{}",
                quoted(name),
                failed.run.looked_up_from(),
                listed(&of_notebook)
            ),
        );
    }
    if let Some(existing) = failed.run.found_paths.first() {
        let folder = existing.strip_suffix(name).map(|folder| folder.trim_end_matches('/'));
        let fix = match folder {
            // It runs in its own folder, wherever it was started.
            _ if failed.run.is_notebook() => "Correct the path in the notebook.".to_owned(),
            Some(folder) if !folder.is_empty() => run_in(failed, folder),
            _ => "Correct the path.".to_owned(),
        };
        return failed.because(
            "missing-file",
            format!(
                "Relative paths start at {}, but the project has this file at {}. {fix}",
                failed.run.looked_up_from(),
                quoted(existing)
            ),
        );
    }
    let is_checkpoint = is_checkpoint(failed, name);
    let what = if is_checkpoint { "The checkpoint" } else { "The file" };
    let cause = if is_checkpoint { "missing-checkpoint" } else { "missing-file" };
    let from = match name.starts_with(['/', '…', '~']) {
        true => {
            " It is outside of the project: the program's code, configuration or arguments set its \
            path."
                .to_owned()
        }
        false => format!(" Relative paths start at {}.", failed.run.looked_up_from()),
    };
    let similar: Vec<String> = failed.run.similar_files.iter().map(|it| quoted(it)).collect();
    let similar = match similar.as_slice() {
        [] => String::new(),
        [one] => format!(" Its folder has {one}."),
        [others @ .., last] => format!(" Its folder has {} and {last}.", others.join(", ")),
    };
    let script = failed.run.preparing_scripts.first().filter(|_| !is_checkpoint);
    let of_notebook = notebook::commands_that_get_data(failed);
    let instead = if let Some(script) = script {
        let command = match script.strip_suffix(".sh") {
            Some(_) => format!("bash {script}"),
            None => format!("{} {script}", failed.run.python),
        };
        format!("The script {} may create it: {}.", quoted(script), quoted(&command))
    } else if !of_notebook.is_empty() {
        format!(
            "The notebook has shell commands that may create it, which a run skips.{}",
            listed(&of_notebook)
        )
    } else if !failed.run.commands_before.is_empty() {
        format!("Commands that come first may create it.{}", listed(&failed.run.commands_before))
    } else if is_checkpoint {
        "Put it there, or start the program without it.".to_owned()
    } else {
        match option_of(failed, name) {
            Some(option) => with_option(failed, option),
            None if failed.run.options.is_empty() => how_to_provide_data(failed),
            None => "Put the data there.".to_owned(),
        }
    };
    failed
        .because(cause, format!("{what} {} does not exist.{similar}{from} {instead}", quoted(name)))
}

/// Whether a missing file holds a model. Data also has the ending `.bin`.
fn is_checkpoint(failed: &Failed, name: &str) -> bool {
    let is_data = ["np.", "numpy.", "memmap", "fromfile"];
    let reads_data = is_data.iter().any(|call| failed.run.source.contains(call));
    let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
    let is_in_data = folders.split('/').any(names_data);
    let is_model =
        [".pt", ".pth", ".ckpt", ".safetensors"].iter().any(|ending| name.ends_with(ending));
    is_model || name.ends_with(".bin") && !reads_data && !is_in_data
}

/// A path is `None`, and the program declares an option for its data that was not passed.
pub(super) fn path_not_set(failed: &Failed) -> Option<Advice> {
    let is_path = failed.is(&["TypeError"])
        && failed.message_contains(&["os.PathLike"])
        && failed.message_contains(&["NoneType"]);
    let given = given_options(&failed.run.arguments);
    let mut unset = failed.run.options.iter().filter(|option| {
        option.name.starts_with('-')
            && option.default.is_none()
            && names_data_folder(&option.name)
            && !given.iter().any(|(name, _)| *name == option.name)
    });
    let option = unset.next().filter(|_| is_path)?;
    let how = failed.run.with_arguments(failed.reader, &format!("{} PATH", option.name));
    failed.because(
        "missing-argument",
        format!(
            "A path is not set, and neither is the program's option {}. {how}.{}",
            quoted(&option.name),
            super::arguments::known_commands(failed)
        ),
    )
}

/// The program looks for its data itself, reports that it is missing, and exits:
/// `sys.exit("Training data not found. Run prepare.py first.")`.
pub(super) fn exit_without_data(failed: &Failed) -> Option<Advice> {
    if !failed.is_exit() || failed.run.error.exit_code == Some(0) {
        return None;
    }
    let message = failed.failure.message.split_once("exited with the message: ");
    let last = || failed.run.output.iter().rev().map(String::as_str);
    // The reason may be printed before `sys.exit(1)`, with a hint after it.
    const LOOKED_AT: usize = 3;
    let reason = match message {
        Some((_, text)) => text.lines().find(|line| says_data_is_missing(line)),
        None => last().take(LOOKED_AT).find(|line| says_data_is_missing(line)),
    }?;
    let instead = match option_of(failed, reason.split_whitespace().last().unwrap_or_default()) {
        Some(option) => with_option(failed, option),
        None if failed.run.options.is_empty() => how_to_provide_data(failed),
        None => "Put the data there.".to_owned(),
    };
    failed.because(
        "missing-file",
        format!(
            "The program checks for its data, did not find it, and exits. Relative paths start at \
            {}. {instead}{}",
            failed.run.looked_up_from(),
            super::arguments::known_commands(failed)
        ),
    )
}

/// Whether a line of output reports missing data.
fn says_data_is_missing(line: &str) -> bool {
    const ABSENT: [&str; 9] = [
        "not found",
        "not find",
        "n't find",
        "cannot find",
        "not exist",
        "n't exist",
        "no such file",
        "missing",
        "no data",
    ];
    const DATA: [&str; 9] =
        ["data", "corpus", "file", "folder", "directory", "images", "checkpoint", "csv", "weights"];
    let line = line.to_lowercase();
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    ABSENT.iter().any(|text| line.contains(text))
        && words.any(|word| DATA.iter().any(|data| word.starts_with(data)))
}

/// The program asserts that a path exists.
pub(super) fn asserted_path(failed: &Failed) -> Option<Advice> {
    let source = failed.run.source.as_str();
    let checks =
        ["os.path.exists(", "os.path.isfile(", "os.path.isdir(", ".exists()", ".is_file()"];
    let is_check = source.trim_start().starts_with("assert")
        && !source.contains("not ")
        && checks.iter().any(|check| source.contains(check));
    if !failed.is(&["AssertionError"]) || !is_check {
        return None;
    }
    let instead = match option_of(failed, "") {
        Some(option) => with_option(failed, option),
        None => "Put it there.".to_owned(),
    };
    failed.because(
        "missing-file",
        format!(
            "A file or folder that the program needs does not exist. Relative paths start at {}. \
            {instead}",
            failed.run.looked_up_from()
        ),
    )
}

/// How to run the program in a folder of the project. A script given on the command line runs in
/// the user's working directory.
fn run_in(failed: &Failed, folder: &str) -> String {
    let setting = format!("`working_directory = \"{folder}\"` in ridgeline.toml");
    let path = failed.run.path();
    match failed.reader {
        Reader::Terminal if path != "." => {
            let up = "../".repeat(folder.split('/').count());
            format!("Run it there: `cd {folder} && ridgeline profile {up}{path}`.")
        }
        Reader::Terminal | Reader::Editor => format!("Run it there: {setting}."),
    }
}

/// The option that decides where the data is.
fn option_of<'a>(failed: &'a Failed, name: &str) -> Option<&'a str> {
    let is_above = |value: &str| {
        let value = value.trim_start_matches("./").trim_end_matches('/');
        value.len() > 1 && name.trim_start_matches("./").starts_with(value)
    };
    let given = given_options(&failed.run.arguments);
    let is_given = |option: &DeclaredOption| given.iter().any(|(name, _)| *name == option.name);
    let declared = || failed.run.options.iter().filter(|option| !is_given(option));
    let by_default =
        || declared().find(|option| option.default.as_deref().is_some_and(is_above)).map(name_of);
    // The path may start with a value: `data/gowalla` with `--dataset gowalla`.
    let in_path = || {
        let is_part = |value: &str| value.len() > 2 && name.split(['/', '.']).any(|it| it == value);
        let mut all = given
            .iter()
            .copied()
            .chain(declared().filter_map(|it| Some((it.name.as_str(), it.default.as_deref()?))));
        all.find(|(option, value)| names_data(option) && is_part(value)).map(|(option, _)| option)
    };
    let by_name = || declared().find(|option| names_data_folder(&option.name)).map(name_of);
    (given.iter().find(|(_, value)| is_above(value)).map(|(option, _)| *option))
        .or_else(by_default)
        .or_else(by_name)
        .or_else(in_path)
}

fn name_of(option: &DeclaredOption) -> &str {
    &option.name
}

/// The options among a program's arguments, with their values.
fn given_options(arguments: &[String]) -> Vec<(&str, &str)> {
    let spaced = arguments.windows(2).filter_map(|pair| match pair {
        [option, value] if option.starts_with('-') && !option.contains('=') => {
            Some((option.as_str(), value.as_str()))
        }
        _ => None,
    });
    let joined = arguments.iter().filter_map(|one| one.split_once('='));
    spaced.chain(joined.filter(|(option, _)| option.starts_with('-'))).collect()
}

/// Whether an option is about data: `--dataset`.
fn names_data(option: &str) -> bool {
    let option = option.to_lowercase();
    ["data", "corpus", "input"].iter().any(|word| option.contains(word))
}

/// Whether an option sets where the data is: `--data`, `--data_dir`, `--dataset-path`.
fn names_data_folder(option: &str) -> bool {
    let option = option.trim_start_matches('-').to_lowercase();
    let is_place =
        ["dir", "path", "root", "folder", "file"].iter().any(|word| option.contains(word));
    option == "data" || names_data(&option) && is_place
}

/// How to pass another path.
fn with_option(failed: &Failed, option: &str) -> String {
    // The value of `--dataset` may be a name.
    let declared = failed.run.options.iter().find(|it| it.name == option);
    let default = declared.and_then(|it| it.default.as_deref());
    let given = given_options(&failed.run.arguments).into_iter().find(|(name, _)| *name == option);
    let has_path = given.map(|(_, value)| value).or(default).is_some_and(|it| it.contains('/'));
    let is_name = names_data(option) && !names_data_folder(option) && !has_path;
    let value = if is_name { "NAME" } else { "PATH" };
    let how = failed.run.with_arguments(failed.reader, &format!("{option} {value}"));
    format!("Put the data there, or change `{option}`. {how}.")
}

fn how_to_provide_data(failed: &Failed) -> String {
    if failed.run.is_notebook() {
        return "Put the data there, or change the path in the notebook.".to_owned();
    }
    let how = failed.run.with_arguments(failed.reader, "--data PATH");
    format!("Put the data there, or pass another path if the program has an option for it. {how}.")
}
