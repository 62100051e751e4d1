//! Files, data sets and commands that are not there.

use super::{Advice, Reader, Seen, between, quoted};

/// A command that the program starts.
pub(super) fn missing_command(seen: &Seen) -> Option<Advice> {
    let is_command = seen.raised_in() == "subprocess.py" && seen.errno() == "ENOENT";
    // A path may be the folder that the command is to run in.
    let name = seen.run.error.file.as_deref().filter(|name| is_command && !name.contains('/'))?;
    seen.because(
        "missing-command",
        format!(
            "The program runs the command {}, which is not installed here or not on PATH. Install \
            it, or run Ridgeline where it is on PATH.",
            quoted(name)
        ),
    )
}

/// torchvision with `download=False`, and folders without images.
pub(super) fn missing_data_set(seen: &Seen) -> Option<Advice> {
    let of_torchvision =
        seen.is(&["RuntimeError"]) && seen.failure.message.starts_with("Dataset not found");
    let of_hub = seen.is(&["DatasetNotFoundError"]);
    let of_folder =
        seen.is(&["FileNotFoundError"]) && seen.says(&["Couldn't find any class folder in "]);
    if !(of_torchvision || of_hub || of_folder) {
        return None;
    }
    let text = if of_hub {
        "The dataset name is wrong, or the dataset is private and requires a login (`hf auth \
        login`)."
            .to_owned()
    } else if of_folder {
        format!(
            "The folder has no class subfolders, which `ImageFolder` needs. {}",
            pointed_to_data(seen)
        )
    } else {
        let kept = "Profiled runs do not keep files written to the project, so download the data \
            by running the program once without Ridgeline, or add the folder to `keep_writes` in \
            ridgeline.toml";
        format!("The dataset is missing, and the program is not allowed to download it. {kept}.")
    };
    seen.because("missing-data-set", text)
}

/// A data set without a sample.
pub(super) fn empty_data_set(seen: &Seen) -> Option<Advice> {
    let of_sampler = seen.is(&["ValueError"])
        && seen.says(&["num_samples should be a positive integer value, but got num_samples=0"]);
    let of_folder = seen.says(&["Found 0 files in subfolders of", "Found 0 images in"]);
    if !(of_sampler || of_folder) {
        return None;
    }
    seen.because(
        "empty-data-set",
        format!(
            "The dataset is empty: the program found no samples in its data folder. Relative paths \
            start at {}. {}",
            seen.run.looked_up_from(),
            pointed_to_data(seen)
        ),
    )
}

/// A file that is not where the program looks.
pub(super) fn missing_file(seen: &Seen) -> Option<Advice> {
    let by_number = seen.errno() == "ENOENT";
    if !(seen.is(&["FileNotFoundError"]) || by_number) {
        return None;
    }
    let said = seen.failure.message.as_str();
    let name = seen.run.error.file.as_deref().or_else(|| between(said, "directory: '", "'"))?;
    if let Some(elsewhere) = seen.run.elsewhere.first() {
        let folder = elsewhere.strip_suffix(name).map(|folder| folder.trim_end_matches('/'));
        let do_that = match folder {
            Some(folder) if !folder.is_empty() => run_in(seen, folder),
            _ => "Correct the path.".to_owned(),
        };
        return seen.because(
            "missing-file",
            format!(
                "Relative paths start at {}, but the project has this file at {}. {do_that}",
                seen.run.looked_up_from(),
                quoted(elsewhere)
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
        false => format!(" Relative paths start at {}.", seen.run.looked_up_from()),
    };
    let instead = if is_checkpoint {
        "Put it there, or start the program without it.".to_owned()
    } else {
        pointed_to_data(seen)
    };
    seen.because(cause, format!("{what} {} does not exist.{from} {instead}", quoted(name)))
}

/// How a program is run in a folder of the project. A script that is named on the command line runs where the
/// person is.
fn run_in(seen: &Seen, folder: &str) -> String {
    let kept = format!("`working_directory = \"{folder}\"` in ridgeline.toml");
    let path = seen.run.path();
    match seen.reader {
        Reader::Terminal if path != "." => {
            let up = "../".repeat(folder.split('/').count());
            format!("Run it there: `cd {folder} && ridgeline profile {up}{path}`.")
        }
        Reader::Terminal | Reader::Editor => format!("Run it there: {kept}."),
    }
}

fn pointed_to_data(seen: &Seen) -> String {
    let how = seen.run.with_arguments(seen.reader, "--data PATH");
    format!("Put the data there, or pass another path if the program has an option for it. {how}.")
}
