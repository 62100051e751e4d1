//! Missing files, datasets and commands.

use super::{Advice, Failed, Reader, between, quoted};

/// A command that the program starts is missing.
pub(super) fn missing_command(failed: &Failed) -> Option<Advice> {
    let is_command = failed.raised_in() == "subprocess.py" && failed.errno() == "ENOENT";
    // A path may be the working directory for the command.
    let name = failed.run.error.file.as_deref().filter(|name| is_command && !name.contains('/'))?;
    failed.because(
        "missing-command",
        format!(
            "The program runs the command {}, which is not installed here or not on PATH. Install \
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

/// The file does not exist where the program looks for it.
pub(super) fn missing_file(failed: &Failed) -> Option<Advice> {
    let has_errno = failed.errno() == "ENOENT";
    if !(failed.is(&["FileNotFoundError"]) || has_errno) {
        return None;
    }
    let message = failed.failure.message.as_str();
    let name =
        failed.run.error.file.as_deref().or_else(|| between(message, "directory: '", "'"))?;
    if let Some(existing) = failed.run.found_paths.first() {
        let folder = existing.strip_suffix(name).map(|folder| folder.trim_end_matches('/'));
        let fix = match folder {
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
    let is_checkpoint = [".pt", ".pth", ".ckpt", ".safetensors", ".bin"]
        .iter()
        .any(|ending| name.ends_with(ending));
    let what = if is_checkpoint { "The checkpoint" } else { "The file" };
    let cause = if is_checkpoint { "missing-checkpoint" } else { "missing-file" };
    let from = match name.starts_with(['/', '…', '~']) {
        true => String::new(),
        false => format!(" Relative paths start at {}.", failed.run.looked_up_from()),
    };
    let instead = if is_checkpoint {
        "Put it there, or start the program without it.".to_owned()
    } else {
        option_of(failed, name).map_or_else(
            || how_to_provide_data(failed),
            |option| format!("Put the data there, or pass another path with `{option}`."),
        )
    };
    failed.because(cause, format!("{what} {} does not exist.{from} {instead}", quoted(name)))
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

/// The option whose value is the path, or a folder above it.
fn option_of<'a>(failed: &'a Failed, name: &str) -> Option<&'a str> {
    let arguments = &failed.run.arguments;
    let folder = |value: &str| {
        let value = value.trim_start_matches("./").trim_end_matches('/');
        value.len() > 1 && name.trim_start_matches("./").starts_with(value)
    };
    let spaced = arguments.windows(2).find_map(|pair| match pair {
        [option, value] if option.starts_with('-') && folder(value) => Some(option.as_str()),
        _ => None,
    });
    let joined = || {
        arguments.iter().filter_map(|one| one.split_once('=')).find_map(|(option, value)| {
            (option.starts_with('-') && folder(value)).then_some(option)
        })
    };
    spaced.or_else(joined)
}

fn how_to_provide_data(failed: &Failed) -> String {
    let how = failed.run.with_arguments(failed.reader, "--data PATH");
    format!("Put the data there, or pass another path if the program has an option for it. {how}.")
}
