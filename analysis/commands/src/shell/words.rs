//! Recognizes characters, assignments and the script's own folder.

use super::{Shell, Word};

impl Shell<'_> {
    /// Reads the rest of `$(command)`. Only the script's own folder has a known value.
    pub(super) fn read_substitution(&mut self) -> Word {
        let mut depth = 0_u32;
        let mut inside = String::new();
        while let Some(c) = self.next() {
            inside.push(c);
            match c {
                '(' => depth += 1,
                ')' if depth <= 1 => break,
                ')' => depth -= 1,
                _ => {}
            }
        }
        let Some((own, below)) = self.own_folder.zip(below_own_folder(&inside)) else {
            return Word::default();
        };
        let own = if own.is_empty() { "." } else { own };
        // The folder is relative to where the script starts, which an earlier `cd` may have left.
        Word { text: format!("{own}{below}"), is_certain: self.folder.as_deref() == Some("") }
    }
}

/// Whether a character ends a word outside of quotes.
pub(super) fn ends_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | ';' | '&' | '|' | '(' | ')' | '>')
}

/// Splits `NAME=value`.
pub(in super::super) fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Returns what follows the script's own folder in a command whose output is a folder: `/..` for
/// `(cd "$(dirname "$0")/.." && pwd)`. Returns `None` for other commands.
pub(super) fn below_own_folder(command: &str) -> Option<String> {
    let plain: String =
        command.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
    own_folder(&plain)
}

/// The same without quotes and spaces.
fn own_folder(command: &str) -> Option<String> {
    let inside = command.strip_prefix('(')?.strip_suffix(')')?;
    if let Some(path) = inside.strip_prefix("dirname") {
        let path = path.strip_prefix("--").unwrap_or(path);
        let resolved = ["$(readlink-f", "$(realpath"].iter().find_map(|it| path.strip_prefix(it));
        let path = resolved.and_then(|it| it.strip_suffix(')')).unwrap_or(path);
        let is_script =
            matches!(path, "$0" | "${0}" | "$BASH_SOURCE" | "${BASH_SOURCE}" | "${BASH_SOURCE[0]}");
        return is_script.then(String::new);
    }
    let folder = inside.strip_prefix("cd")?;
    let folder = folder.strip_prefix("--").unwrap_or(folder);
    let folder = ["&&pwd", "&&pwd-P", ";pwd"].iter().find_map(|it| folder.strip_suffix(it))?;
    let folder = folder.strip_suffix(">/dev/null2>&1").unwrap_or(folder);
    let folder = folder.strip_suffix("&>/dev/null").unwrap_or(folder);
    let (outer, below) = folder.strip_prefix('$')?.rsplit_once(')')?;
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let is_below = below.is_empty() || below.starts_with('/') && below.chars().all(is_path);
    // Only `dirname` is expected within `cd`.
    let is_dirname = outer.starts_with("(dirname");
    let found = own_folder(&format!("{outer})")).filter(|_| is_below && is_dirname)?;
    Some(found + below)
}
