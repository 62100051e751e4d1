//! Parses the subset of shell syntax that is needed to find started programs: words, quotes, simple
//! variables, `cd`.
//!
//! It runs nothing and knows no programs. A word is uncertain if it depends on something that only
//! a shell can know, such as the output of a command or a glob.

use std::collections::BTreeMap;

use super::placeholder::{is_certain_placeholder, is_placeholder};

mod words;

pub(super) use words::assignment;
use words::ends_word;

/// The maximum number of commands read from a script.
const MAX_COMMANDS: usize = 500;
const MAX_WORDS: usize = 1_000;
/// The maximum length of a word. A variable that contains itself twice would double with every
/// line.
const MAX_WORD_BYTES: usize = 8_192;

/// A word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Whether a shell would pass exactly this text to the program.
    pub(super) is_certain: bool,
}

/// A command and the variables that are set for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShellCommand {
    pub(super) words: Vec<Word>,
    /// Set in front of the command, or exported before it.
    pub(super) environment: BTreeMap<String, Word>,
    /// The folder after earlier `cd` commands, relative to where the script starts; `None` if it is
    /// unknown.
    pub(super) folder: Option<String>,
    /// 1-based.
    pub(super) line: u32,
}

/// What is known when a script starts.
#[derive(Clone, Debug, Default)]
pub(super) struct InitialState<'a> {
    /// `$1`, `$2`, …; `None` if they are unknown.
    pub(super) positional: Option<&'a [String]>,
    pub(super) variables: BTreeMap<String, Word>,
    /// The script's own folder (`$(dirname "$0")`), relative to where it starts; `None` if the
    /// commands are not in a script.
    pub(super) own_folder: Option<&'a str>,
}

/// Returns the commands of a script.
pub(super) fn commands(text: &str, initial: InitialState<'_>) -> Vec<ShellCommand> {
    let mut shell = Shell {
        rest: text.chars().collect(),
        at: 0,
        line: 1,
        variables: initial.variables,
        exported: BTreeMap::new(),
        positional: initial.positional,
        own_folder: initial.own_folder,
        folder: Some(String::new()),
        heredoc: None,
        found: Vec::new(),
    };
    shell.read();
    shell.found
}

struct Shell<'a> {
    rest: Vec<char>,
    at: usize,
    line: u32,
    variables: BTreeMap<String, Word>,
    exported: BTreeMap<String, Word>,
    positional: Option<&'a [String]>,
    own_folder: Option<&'a str>,
    folder: Option<String>,
    /// The word that ends the here-document after this line.
    heredoc: Option<String>,
    found: Vec<ShellCommand>,
}

impl Shell<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
    }

    fn read(&mut self) {
        while self.peek(0).is_some() && self.found.len() < MAX_COMMANDS {
            self.read_command();
        }
    }

    fn read_command(&mut self) {
        let mut words: Vec<Word> = Vec::new();
        let mut line = None;
        loop {
            match self.peek(0) {
                None => break,
                Some('\\') if self.peek(1) == Some('\n') => self.skip(2),
                Some('\\') if self.peek(1) == Some('\r') && self.peek(2) == Some('\n') => {
                    self.skip(3);
                }
                Some(' ' | '\t' | '\r') => self.skip(1),
                Some('#') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.skip(1);
                    }
                }
                Some('\n') => {
                    self.skip(1);
                    self.skip_heredoc();
                    break;
                }
                Some(';' | '&' | '|' | '(' | ')') => {
                    // `&>` redirects output.
                    if self.peek(0) == Some('&') && self.peek(1) == Some('>') {
                        self.skip(1);
                        self.skip_redirection();
                        continue;
                    }
                    self.skip(1);
                    break;
                }
                Some('<' | '>') => match self.placeholder() {
                    Some(word) => words.push(word),
                    None => self.skip_redirection(),
                },
                Some(_) => {
                    line.get_or_insert(self.line);
                    let is_redirected = |c: Option<char>| matches!(c, Some('<' | '>'));
                    if self.peek(0).is_some_and(|c| c.is_ascii_digit())
                        && is_redirected(self.peek(1))
                    {
                        self.skip(1);
                        self.skip_redirection();
                        continue;
                    }
                    let more = self.read_word();
                    if words.len() < MAX_WORDS {
                        words.extend(more);
                    }
                }
            }
        }
        if let Some(line) = line {
            self.record(words, line);
        }
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    /// `<path>` in documentation is a placeholder; `< path` redirects the input.
    fn placeholder(&mut self) -> Option<Word> {
        const MAX_CHARS: usize = 60;
        let begins_name = |c: char| c.is_alphanumeric() || c == '/';
        if self.peek(0) != Some('<') || !self.peek(1).is_some_and(begins_name) {
            return None;
        }
        let inside = self.rest.get(self.at..)?.iter().take(MAX_CHARS);
        let inside: String = inside.take_while(|c| !matches!(c, '\n' | '>')).collect();
        let length = inside.chars().count();
        // `</dev/null >log` is not a placeholder.
        let is_file = inside.starts_with("</") && inside.contains(char::is_whitespace);
        if self.peek(length) != Some('>') || is_file {
            return None;
        }
        self.skip(length + 1);
        Some(Word { text: format!("{inside}>"), is_certain: false })
    }

    fn skip_redirection(&mut self) {
        let is_heredoc = self.peek(0) == Some('<') && self.peek(1) == Some('<');
        while self.peek(0).is_some_and(|c| matches!(c, '<' | '>' | '&' | '-')) {
            self.skip(1);
        }
        while self.peek(0).is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.skip(1);
        }
        if self.peek(0).is_some_and(|c| c != '\n') {
            let words = self.read_word();
            if is_heredoc {
                self.heredoc = words.into_iter().next().map(|word| word.text);
            }
        }
    }

    /// Skips the here-document of a command.
    fn skip_heredoc(&mut self) {
        let Some(end) = self.heredoc.take() else { return };
        while self.peek(0).is_some() {
            let mut line = String::new();
            while let Some(c) = self.next().filter(|c| *c != '\n') {
                line.push(c);
            }
            if line.trim() == end {
                return;
            }
        }
    }

    /// Reads a word, or several if an unquoted variable expands to several.
    fn read_word(&mut self) -> Vec<Word> {
        let mut word = Word { text: String::new(), is_certain: true };
        let mut expanded: Option<Vec<Word>> = None;
        let mut is_quoted = false;
        while let Some(c) = self.peek(0) {
            match c {
                _ if ends_word(c) => break,
                '<' => match self.placeholder() {
                    Some(inside) => {
                        word.text.push_str(&inside.text);
                        word.is_certain = false;
                    }
                    None => break,
                },
                '\'' => {
                    is_quoted = true;
                    self.skip(1);
                    while let Some(c) = self.next().filter(|c| *c != '\'') {
                        word.text.push(c);
                    }
                }
                '"' => {
                    is_quoted = true;
                    self.skip(1);
                    expanded = self.read_double_quoted(&mut word).or(expanded);
                }
                '\\' => {
                    self.skip(1);
                    match self.next() {
                        Some('\n') | None => {}
                        Some(c) => word.text.push(c),
                    }
                }
                '$' => {
                    let starts_word = word.text.is_empty();
                    let value = self.read_variable(&mut word);
                    if let Some(value) = value {
                        // A shell splits the value of an unquoted variable.
                        let splits = value.is_certain
                            && starts_word
                            && value.text.contains(char::is_whitespace);
                        if splits {
                            let parts = value.text.split_whitespace();
                            expanded = Some(
                                parts
                                    .map(|it| Word { text: it.to_owned(), ..value.clone() })
                                    .collect(),
                            );
                        } else {
                            word.is_certain &= value.is_certain;
                            word.text.push_str(&value.text);
                        }
                    } else if word.text.is_empty() && self.at_all_positional() {
                        expanded = Some(self.all_positional());
                    }
                }
                '`' => {
                    self.skip(1);
                    while self.next().is_some_and(|c| c != '`') {}
                    word.is_certain = false;
                }
                '*' | '?' => {
                    word.is_certain = false;
                    word.text.push(c);
                    self.skip(1);
                }
                _ => {
                    word.text.push(c);
                    self.skip(1);
                }
            }
            if word.text.len() > MAX_WORD_BYTES {
                word.is_certain = false;
                word.text.clear();
            }
        }
        word.is_certain &= !if is_quoted {
            is_certain_placeholder(&word.text)
        } else {
            is_placeholder(&word.text)
        };
        match expanded {
            Some(words) if word.text.is_empty() => words,
            _ if word.text.is_empty() && !is_quoted => {
                // `$UNKNOWN` may expand to nothing.
                if word.is_certain { Vec::new() } else { vec![word] }
            }
            _ => vec![word],
        }
    }

    fn read_double_quoted(&mut self, word: &mut Word) -> Option<Vec<Word>> {
        let mut expanded = None;
        while let Some(c) = self.peek(0) {
            match c {
                '"' => {
                    self.skip(1);
                    break;
                }
                '\\' => {
                    self.skip(1);
                    match self.next() {
                        Some('\n') | None => {}
                        Some(c @ ('"' | '\\' | '$' | '`')) => word.text.push(c),
                        Some(c) => word.text.extend(['\\', c]),
                    }
                }
                '$' => {
                    if let Some(value) = self.read_variable(word) {
                        word.is_certain &= value.is_certain;
                        word.text.push_str(&value.text);
                    } else if self.at_all_positional() {
                        expanded = Some(self.all_positional());
                    }
                }
                '`' => {
                    self.skip(1);
                    while self.next().is_some_and(|c| c != '`') {}
                    word.is_certain = false;
                }
                _ => {
                    word.text.push(c);
                    self.skip(1);
                }
            }
        }
        expanded
    }

    fn at_all_positional(&self) -> bool {
        self.peek(0) == Some('$') && matches!(self.peek(1), Some('@' | '*'))
    }

    fn all_positional(&mut self) -> Vec<Word> {
        self.skip(2);
        let known = self.positional.unwrap_or_default();
        known.iter().map(|text| Word { text: text.clone(), is_certain: true }).collect()
    }

    /// Expands `$name`, `${name}`, `${name:-else}` or `$(command)`. At `$@`, returns `None` and
    /// reads nothing.
    fn read_variable(&mut self, word: &mut Word) -> Option<Word> {
        if self.at_all_positional() {
            return None;
        }
        self.skip(1);
        let unknown = |text: String| Word { text, is_certain: false };
        match self.peek(0) {
            Some('(') => Some(self.read_substitution()),
            Some('{') => {
                self.skip(1);
                let mut inside = String::new();
                while let Some(c) = self.next().filter(|c| *c != '}') {
                    inside.push(c);
                }
                let ends = |c: char| !(c.is_alphanumeric() || c == '_');
                let (name, rest) = inside.split_at(inside.find(ends).unwrap_or(inside.len()));
                let default = rest.strip_prefix(":-").or_else(|| rest.strip_prefix('-'));
                let value = self.value_of(name);
                match (value, default) {
                    (Some(value), _) if rest.is_empty() || default.is_some() => Some(value),
                    (None, Some(default)) if !default.contains('$') => {
                        Some(Word { text: default.trim_matches('"').to_owned(), is_certain: true })
                    }
                    _ => Some(unknown(format!("${{{inside}}}"))),
                }
            }
            Some(c) if c.is_ascii_digit() => {
                self.skip(1);
                Some(self.value_of(&c.to_string()).unwrap_or_else(|| unknown(format!("${c}"))))
            }
            Some(c) if c.is_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek(0).filter(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.skip(1);
                }
                if let Some(value) = self.value_of(&name) {
                    return Some(value);
                }
                // In a script that starts without its own `name`, part of a word is empty. A whole
                // word is likely to be set by the person, as is a name in capitals.
                let is_part = !word.text.is_empty() || self.peek(0).is_some_and(|c| !ends_word(c));
                let is_unset = self.positional.is_some() && name.to_lowercase() == name && is_part;
                Some(if is_unset {
                    Word { text: String::new(), is_certain: true }
                } else {
                    unknown(format!("${name}"))
                })
            }
            Some('#' | '?' | '!' | '$') => {
                self.skip(1);
                Some(unknown(String::new()))
            }
            _ => {
                word.text.push('$');
                Some(Word { text: String::new(), is_certain: true })
            }
        }
    }

    fn value_of(&self, name: &str) -> Option<Word> {
        if let Ok(number) = name.parse::<usize>() {
            let text = self.positional?.get(number.checked_sub(1)?).cloned();
            return text.map(|text| Word { text, is_certain: true });
        }
        self.variables.get(name).cloned()
    }

    fn record(&mut self, mut words: Vec<Word>, line: u32) {
        // `for seed in 1 2; do …`: use the first iteration.
        let text = |at: usize| words.get(at).map(|word| word.text.as_str());
        if text(0) == Some("for") && text(2) == Some("in") {
            if let (Some(name), Some(value)) = (text(1), words.get(3)) {
                self.variables.insert(name.to_owned(), value.clone());
            }
            return;
        }
        while words.first().is_some_and(|word| {
            matches!(word.text.as_str(), "then" | "do" | "else" | "!" | "{" | "if" | "while")
        }) {
            words.remove(0);
        }
        let mut environment = self.exported.clone();
        let assigned = words.iter().take_while(|word| assignment(&word.text).is_some()).count();
        let before: Vec<Word> = words.drain(..assigned).collect();
        let pairs = before.into_iter().filter_map(|word| {
            let (name, value) = assignment(&word.text)?;
            Some((name.to_owned(), Word { text: value.to_owned(), ..word }))
        });
        let Some(first) = words.first() else {
            self.variables.extend(pairs);
            return;
        };
        environment.extend(pairs);
        match first.text.as_str() {
            "export" | "declare" | "readonly" | "local" | "set" => {
                let exports = first.text == "export";
                for word in words.iter().skip(1) {
                    let Some((name, value)) = assignment(&word.text) else { continue };
                    let value = Word { text: value.to_owned(), is_certain: word.is_certain };
                    // A cache folder below `$HOME` does not keep the command from running.
                    if exports && value.is_certain {
                        self.exported.insert(name.to_owned(), value.clone());
                    }
                    self.variables.insert(name.to_owned(), value);
                }
            }
            "cd" | "pushd" => {
                let known = words.get(1).filter(|word| word.is_certain && words.len() == 2);
                self.folder = match (known, &self.folder) {
                    (Some(word), Some(folder)) if word.text == "." => Some(folder.clone()),
                    (Some(word), Some(folder)) if !word.text.starts_with(['/', '~', '-']) => {
                        Some(format!("{folder}{}/", word.text.trim_end_matches('/')))
                    }
                    _ => None,
                };
            }
            _ => {
                let folder = self.folder.clone();
                self.found.push(ShellCommand { words, environment, folder, line });
            }
        }
    }
}

#[cfg(test)]
mod tests;
