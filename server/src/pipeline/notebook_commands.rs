//! The shell commands of a notebook, which a run skips and a message about its failure names.

use std::path::Path;

use ridgeline_analysis::present::failure::RunFailure;
use ridgeline_analysis::python::syntax::cell_magics::shell_commands;

use crate::{documents, notebook};

/// Returns the shell commands of a notebook's cells, up to that of the failure.
pub(super) fn find(failure: &RunFailure, root: &Path, script: &Path) -> Vec<String> {
    const MAX_COMMANDS: usize = 200;
    let cells = notebook::cells_on_disk(&root.join(script), documents::SIZE_LIMIT as u64);
    let failed = failure.frames.iter().rev().find_map(|it| notebook::cell_of(Path::new(&it.path)));
    let until = failed.map_or(usize::MAX, |(_, number)| number);
    let name = script.to_string_lossy().replace('\\', "/");
    let mut commands = Vec::new();
    for (number, cell) in (1..=until).zip(cells.unwrap_or_default()) {
        let of_cell = shell_commands(&cell, MAX_COMMANDS.saturating_sub(commands.len()));
        let shown = of_cell.into_iter().filter(|(_, text)| !may_have_secret(text));
        commands.extend(shown.map(|(line, text)| format!("{name}#{number}:{line}: {text}")));
    }
    commands
}

/// Whether a command may contain a password or a token, which no message repeats.
fn may_have_secret(command: &str) -> bool {
    let command = command.to_lowercase();
    let words = ["token", "authorization", "password", "secret", "api_key", "apikey", "api-key"];
    let has_login = command.split("://").skip(1).any(|rest| {
        rest.split(['/', ' ', '"', '\'']).next().is_some_and(|host| host.contains('@'))
    });
    has_login || words.iter().any(|word| command.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_a_login_are_not_repeated() {
        for command in [
            "git clone https://name:1234@example.org/data",
            "git clone \"https://x-access@example.org\"",
            "wget --header 'Authorization: Bearer x' https://example.org/a",
            "hf auth login --token hf_x",
            "curl https://example.org/a?api_key=1",
        ] {
            assert!(may_have_secret(command), "{command}");
        }
        for command in [
            "wget https://example.org/a@b.zip",
            "pip install git+https://example.org/a@v1",
            "pip install a@https://example.org/b",
        ] {
            assert!(!may_have_secret(command), "{command}");
        }
    }
}
