//! The Python code of a notebook's cell: IPython's magics and shell commands replaced.
//!
//! Every replacement has the length of what it replaces, so that offsets and lines are those of the
//! cell. The agent runs cells in the same way (`process/notebook.py`).

use std::ops::Range;

/// Cell magics whose cell is Python.
const PYTHON_CELLS: [&str; 7] =
    ["time", "timeit", "capture", "prun", "python", "python3", "ridgeline"];
/// Shell commands that IPython carries out without a mark before them.
const BARE_COMMANDS: [&str; 8] = ["pip", "conda", "mamba", "uv", "ls", "cat", "mkdir", "rm"];

/// Returns the Python code of a cell. The cell of a magic such as `%%bash` becomes blank, and a line
/// that is not Python becomes the statement `0`.
pub fn python_of_cell(cell: &str) -> String {
    let mut code = cell.to_owned();
    let mut at = 0;
    if let Some(first) = first_line(cell)
        && let Some(rest) = cell[first.clone()].trim_start().strip_prefix("%%")
    {
        let magic = rest.split_whitespace().next().unwrap_or_default();
        if !PYTHON_CELLS.contains(&magic) {
            return blank(cell);
        }
        replace(&mut code, first.clone(), "");
        at = first.end;
    }
    for line in lines_to_replace(cell, at) {
        if let Some((range, new)) = replacement(&cell[line.clone()]) {
            replace(&mut code, line.start + range.start..line.start + range.end, new);
        }
    }
    code
}

/// Returns the shell commands of a cell, at most `limit`, with their lines from 1: of `!wget URL`,
/// `%pip install x`, and the lines of `%%bash`.
pub fn shell_commands(cell: &str, limit: usize) -> Vec<(u32, &str)> {
    let first = first_line(cell).unwrap_or_default();
    let start = match cell[first.clone()].trim_start().strip_prefix("%%") {
        None => 0,
        Some(rest) => {
            let magic = rest.split_whitespace().next().unwrap_or_default();
            if matches!(magic, "bash" | "sh" | "shell") {
                let lines = cell.lines().enumerate().map(|(at, line)| (at, line.trim()));
                return lines
                    .filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', '%']))
                    .map(|(at, line)| (u32::try_from(at + 1).unwrap_or(u32::MAX), line))
                    .take(limit)
                    .collect();
            }
            if !PYTHON_CELLS.contains(&magic) {
                return Vec::new();
            }
            first.end
        }
    };
    let mut commands = Vec::new();
    let (mut number, mut counted) = (1_u32, 0);
    for range in lines_to_replace(cell, start) {
        number = number.saturating_add(cell[counted..range.start].matches('\n').count() as u32);
        counted = range.start;
        let line = cell[range].trim();
        let command = line.trim_start_matches(['!', '%']).trim_start();
        let word = command.split(' ').next().unwrap_or_default();
        let is_command = line.starts_with('!') || BARE_COMMANDS.contains(&word);
        if is_command && !command.is_empty() && commands.len() < limit {
            commands.push((number, command));
        }
    }
    commands
}

/// The ranges of the lines from `at` on that are not Python.
fn lines_to_replace(cell: &str, mut at: usize) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        while at < cell.len() {
            let line = at..line_end(cell, at);
            if replacement(&cell[line.clone()]).is_some() {
                at = line.end + 1;
                return Some(line);
            }
            at = statement_end(cell, at);
        }
        None
    })
}

/// The first line that is not blank.
fn first_line(cell: &str) -> Option<Range<usize>> {
    let start = cell.find(|c: char| !c.is_whitespace())?;
    let start = cell[..start].rfind('\n').map_or(0, |before| before + 1);
    Some(start..line_end(cell, start))
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |length| at + length)
}

/// Replaces characters other than line ends by spaces.
fn blank(text: &str) -> String {
    let spaces = |c: char| match c {
        '\n' | '\r' => c.to_string(),
        _ => " ".repeat(c.len_utf8()),
    };
    text.chars().map(spaces).collect()
}

/// Replaces a range by a shorter text and spaces.
fn replace(code: &mut String, range: Range<usize>, new: &str) {
    let mut filled = blank(&code[range.clone()]);
    if filled.len() >= new.len() {
        filled.replace_range(..new.len(), new);
    }
    code.replace_range(range, &filled);
}

/// Returns the part of a line that is not Python and what replaces it, if there is one.
fn replacement(line: &str) -> Option<(Range<usize>, &'static str)> {
    let trimmed = line.trim_end();
    let start = line.len() - line.trim_start().len();
    let rest = trimmed.get(start..).filter(|rest| !rest.is_empty())?;
    let whole = start..trimmed.len();
    if let Some(magic) = rest.strip_prefix('%') {
        let (name, argument) = magic.split_once(' ').unwrap_or((magic, ""));
        let statement = without_options(argument.trim_start());
        let is_statement = matches!(name, "time" | "timeit") && !statement.is_empty();
        return Some(match is_statement {
            true => (start..trimmed.len() - statement.len(), "0;"),
            false => (whole, "0"),
        });
    }
    if rest.starts_with(['!', '?']) {
        return Some((whole, "0"));
    }
    if let Some(asked) = rest.strip_suffix('?') {
        let asked = asked.trim_end_matches('?');
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '*');
        return (!asked.is_empty() && asked.chars().all(is_name)).then_some((whole, "0"));
    }
    if let Some((command, argument)) = rest.split_once(' ')
        && BARE_COMMANDS.contains(&command)
        && argument.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '~' | '-'))
        && !argument.starts_with("- ")
    {
        return Some((whole, "0"));
    }
    // `files = !ls`
    let (targets, value) = rest.split_once('=')?;
    let value = value.trim_start();
    let are_names = targets.split([' ', ',']).all(|name| {
        name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with(char::is_numeric)
    });
    let is_magic = value.starts_with(['!', '%']) && are_names && !targets.trim().is_empty();
    is_magic.then_some((trimmed.len() - value.len()..trimmed.len(), "0"))
}

/// Returns the statement after the options of `%timeit`: `f(x)` in `-n 10 -r3 f(x)`.
fn without_options(arguments: &str) -> &str {
    let mut rest = arguments;
    while let Some(option) = rest.strip_prefix('-') {
        let (option, after) = option.split_once(' ').unwrap_or((option, ""));
        rest = after.trim_start();
        if matches!(option, "n" | "r" | "p") {
            rest = rest.split_once(' ').map_or("", |(_, after)| after.trim_start());
        }
    }
    rest
}

/// Returns the start of the line after a statement, which may contain line ends in brackets and in
/// strings, and after backslashes.
fn statement_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let at_byte = |at: usize| bytes.get(at).copied().unwrap_or(b'\n');
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match at_byte(at) {
            b'#' => at = line_end(text, at),
            b'\n' if depth == 0 => return at + 1,
            quote @ (b'"' | b'\'') => at = string_end(bytes, at, quote),
            b'\\' => at += if at_byte(at + 1) == b'\r' { 3 } else { 2 },
            byte => {
                match byte {
                    b'(' | b'[' | b'{' => depth += 1,
                    b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => (),
                }
                at += 1;
            }
        }
    }
    bytes.len()
}

/// Returns the offset after a string that starts at `start`.
fn string_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let is_quote = |at: usize| bytes.get(at) == Some(&quote);
    let is_triple = is_quote(start + 1) && is_quote(start + 2);
    let mut at = start + if is_triple { 3 } else { 1 };
    while at < bytes.len() {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'\n') if !is_triple => return at,
            Some(byte) if *byte == quote => {
                if !is_triple {
                    return at + 1;
                }
                if is_quote(at + 1) && is_quote(at + 2) {
                    return at + 3;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceIndex;

    #[track_caller]
    fn check(cell: &str, expected: &str) {
        let code = python_of_cell(cell);
        assert_eq!(code.len(), cell.len(), "{cell:?}");
        let lines: Vec<&str> = code.split('\n').map(str::trim_end).collect();
        assert_eq!(lines.join("\n"), expected, "{cell:?}");
        let index = SourceIndex::new(code.clone());
        let root = index.tree().expect("a tree").root_node();
        assert!(!root.has_error(), "{code:?}");
    }

    #[test]
    fn lines_that_are_not_python_are_replaced() {
        check("!pip install é\nx = 1", "0\nx = 1");
        check("if gpu:\n    !nvidia-smi\nx = 1", "if gpu:\n    0\nx = 1");
        check("%load_ext autoreload\n%autoreload 2\n", "0\n0\n");
        check("%time x = f()", "0;    x = f()");
        check("%timeit -n 10 -r3 f(x)", "0;                f(x)");
        check("%timeit", "0");
        check("files, = !ls\nhome = %env HOME", "files, = 0\nhome = 0");
        check("torch.nn.Linear??\n?torch", "0\n0");
        check("pip install -q torch\nls -l", "0\n0");
        check("%%time\nx = 1", "\nx = 1");
        check("\n  %%bash -e\nfor x in 1; do\n", "\n\n\n");
        check("%%writefile net.py\nimport torch\n", "\n\n");
        check("!ls \"it's\r\nx = 1\r\n", "0\nx = 1\n");
    }

    #[test]
    fn commands_of_a_cell() {
        let check = |cell: &str, expected: &[(u32, &str)]| {
            assert_eq!(shell_commands(cell, 3), expected, "{cell:?}");
        };
        check("", &[]);
        check(
            "x = 1\n!wget a.b/c  \n%pip install é\npip install d",
            &[(2, "wget a.b/c"), (3, "pip install é"), (4, "pip install d")],
        );
        check("%%time\nif x:\n  !!ls", &[(3, "ls")]);
        check("%matplotlib inline\n%cd data\n?x\n!\nx = \"\"\"\n!ls\n\"\"\"", &[]);
        check("%%bash\n# get it\nwget a\n\n  unzip b", &[(3, "wget a"), (5, "unzip b")]);
        check("%%writefile a.sh\nwget a", &[]);
        assert_eq!(shell_commands(&"!a\n".repeat(9), 2), [(1, "a"), (2, "a")]);
        assert_eq!(shell_commands(&("%%sh\n".to_owned() + &"a\n".repeat(9)), 1), [(2, "a")]);
    }

    #[test]
    fn python_is_kept() {
        for code in [
            "",
            "\n",
            "x = a % b\n",
            "x = (\n    a\n    % b\n)\n",
            "x = '''\n!ls\n%time\n'''\n",
            "x = \"%d\" \\\n    % 3\n",
            "# !ls\ny = 'it\\'s' # it's\nz = {\n  1: \"\"\"a\n!b\"\"\"\n}\n",
            "ls = 3\ncat = ls - 1\nx == y\nwhy = {}\npip = uv = 1\n",
        ] {
            let expected = code.trim_end_matches(' ');
            check(code, expected);
        }
    }

    /// Lines and offsets are kept, whatever the text is.
    #[test]
    fn random_cells() {
        let letters: Vec<char> = "%!?'\"\\#([)\n\r =-a0é\u{2028}🦀".chars().collect();
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let length = random(24);
            let cell: String = (0..length).map(|_| letters[random(letters.len())]).collect();
            let code = python_of_cell(&cell);
            assert!(shell_commands(&cell, 7).len() <= 7);
            let ends = |text: &str| -> Vec<usize> {
                text.match_indices(['\n', '\r']).map(|(at, _)| at).collect()
            };
            assert_eq!((code.len(), ends(&code)), (cell.len(), ends(&cell)), "{cell:?}");
        }
    }

    #[test]
    fn unusual_cells() {
        for cell in
            ["%", "%%", "!", "?", "??", "= !x", "'''", "'", "\\", "(\n!x", "\u{2028}!x", "x=!"]
        {
            assert_eq!(python_of_cell(cell).len(), cell.len(), "{cell:?}");
        }
        assert_eq!(python_of_cell(&"(".repeat(100_000)).len(), 100_000);
        assert_eq!(python_of_cell(&"!\n".repeat(100_000)).len(), 200_000);
    }
}
