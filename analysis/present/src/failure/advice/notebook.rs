//! What the shell commands of a notebook would have done, which a run skips.

use super::Failed;

/// The maximum number of commands in a message.
const MAX_SHOWN: usize = 3;

/// Returns the commands that may create a file, because they contain its name.
pub(super) fn commands_that_name(failed: &Failed, file: &str) -> Vec<String> {
    const OTHERS: [&str; 8] = ["pip", "conda", "mamba", "uv", "ls", "cat", "head", "rm"];
    // A short name may be a part of another word.
    let is_name = file.len() > 2;
    let has = |command: &&String| {
        is_name && text_of(command).contains(file) && !OTHERS.contains(&first_word(command))
    };
    failed.run.notebook_commands.iter().filter(has).take(MAX_SHOWN).cloned().collect()
}

/// Returns the commands that download or unpack something.
pub(super) fn commands_that_get_data(failed: &Failed) -> Vec<String> {
    const COMMANDS: [&str; 11] =
        ["wget", "curl", "gdown", "kaggle", "git", "unzip", "tar", "gunzip", "cp", "aria2c", "7z"];
    let gets = |command: &&String| COMMANDS.contains(&first_word(command));
    failed.run.notebook_commands.iter().filter(gets).take(MAX_SHOWN).cloned().collect()
}

/// Returns what the notebook passes to `pip install` for a package of one of these names:
/// `git+https://github.com/greydanus/mnist1d`.
pub(super) fn requirement_of<'a>(failed: &'a Failed, names: &[&str]) -> Option<&'a str> {
    let names: Vec<String> = names.iter().map(|name| normalized(name)).collect();
    let of_command = |command: &'a String| {
        let (_, words) = text_of(command).split_once("pip install ")?;
        let words = words.split(['&', ';', '|', '>']).next().unwrap_or_default();
        let requirements = words.split_whitespace().map(|word| word.trim_matches(['\'', '"']));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+:/@=~[]#&?%".contains(c);
        requirements.filter(|word| !word.starts_with('-') && word.chars().all(is_plain)).find(
            |word| {
                names.iter().any(|name| normalized(word).split(is_separator).any(|it| it == name))
            },
        )
    };
    failed.run.notebook_commands.iter().find_map(of_command)
}

fn is_separator(c: char) -> bool {
    !c.is_alphanumeric() && c != '-'
}

/// Names of packages are compared without case, and `_` is `-`.
fn normalized(name: &str) -> String {
    name.to_lowercase().replace('_', "-")
}

/// `wget URL` in `train.ipynb#2:1: wget URL`.
fn text_of(command: &str) -> &str {
    command.split_once(": ").map_or(command, |(_, text)| text)
}

fn first_word(command: &str) -> &str {
    text_of(command).split_whitespace().next().unwrap_or_default()
}
