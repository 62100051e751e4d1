//! The launcher of a multi-rank training program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, de};

use super::{Argument, MAX_SHOWN_CHARACTERS, PathInside, clipped};

/// A launcher: `["torchrun", "--nproc-per-node", "2"]`, or a table with more options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launcher {
    command: Vec<String>,
    remote: Vec<String>,
    python: Option<String>,
    paths: BTreeMap<String, PathInside>,
}

/// The default Python on a remote machine.
const REMOTE_PYTHON: &str = "python3";
/// The options of `ssh` that take a value, see ssh(1).
const SSH_VALUES: &str = "BbcDEeFIiJLlmOoPpQRSWw";

impl Launcher {
    /// Parses a line like a shell: words, quotes, backslashes, comments.
    ///
    /// # Errors
    /// If it names no program or a quote is not closed.
    pub(crate) fn parse(line: &str) -> Result<Launcher, String> {
        let words = shell_words::split(line);
        Launcher::of_words(words.map_err(|_| "a quote is not closed".to_owned())?)
    }

    /// Creates a launcher from its words.
    ///
    /// # Errors
    /// If they name no program.
    pub(crate) fn of_words(command: Vec<String>) -> Result<Launcher, String> {
        Launcher { command, ..Launcher::default() }.checked()
    }

    /// Splits a leading `ssh` command off as the prefix that runs the rest on a remote machine.
    fn checked(mut self) -> Result<Launcher, String> {
        if self.remote.is_empty() && self.command.first().is_some_and(|word| is_ssh(word)) {
            let host = host_of_ssh(&self.command).ok_or("the launcher's `ssh` has no host")?;
            let command = self.command.split_off(host + 1);
            self.remote = std::mem::replace(&mut self.command, command);
        }
        let programs = [self.remote.first(), self.command.first()];
        if programs.iter().flatten().any(|word| word.is_empty() || word.starts_with('-')) {
            return Err("the launcher must start with a program name".to_owned());
        }
        if programs.iter().all(Option::is_none) {
            return Err("the launcher has no program".to_owned());
        }
        if self.remote.is_empty() && self.python.is_some() {
            return Err(
                "`python` in the launcher is for another machine: without `remote`, set it in \
                `command`"
                    .to_owned(),
            );
        }
        if let Some(path) = self.paths.keys().find(|path| !path.starts_with('/')) {
            return Err(format!(
                "`{}` must be an absolute path, as seen by the ranks",
                clipped(path, MAX_SHOWN_CHARACTERS)
            ));
        }
        Ok(self)
    }

    /// The command for display: `torchrun --nproc-per-node 2`.
    pub(crate) fn display(&self) -> String {
        const LONGEST: usize = 200;
        let words: Vec<&str> =
            self.remote.iter().chain(&self.command).map(String::as_str).collect();
        clipped(&words.join(" "), LONGEST)
    }

    /// The launcher in the agent's form, for the project at `root`.
    pub(crate) fn of_project(&self, root: &Path) -> ridgeline_gpu::agent::Launcher {
        let there = self.paths.iter().map(|(there, here)| {
            let here = match here.as_path() {
                path if path.as_os_str().is_empty() => root.to_owned(),
                path => root.join(path),
            };
            (here, there.clone())
        });
        ridgeline_gpu::agent::Launcher {
            command: self.command.clone(),
            remote: self.remote.clone(),
            python: self.python.clone().unwrap_or_else(|| REMOTE_PYTHON.to_owned()),
            paths: there.collect(),
        }
    }
}

fn is_ssh(word: &str) -> bool {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word);
    name == "ssh" || name == "ssh.exe"
}

/// The index of the host among the words of an `ssh` command.
fn host_of_ssh(words: &[String]) -> Option<usize> {
    let mut at = 1;
    loop {
        let word = words.get(at)?;
        let Some(options) = word.strip_prefix('-') else { return Some(at) };
        // `-p 22`, `-p22`, `-vp 22`.
        let value = options.find(|option| SSH_VALUES.contains(option));
        let takes_next = value.is_some_and(|place| place + 1 == options.len());
        at += if takes_next { 2 } else { 1 };
    }
}

/// Keys of the table.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Table {
    /// The launcher command without the script: `["torchrun", "--nproc-per-node", "2"]`.
    command: Vec<Argument>,
    /// Command prefix for another machine without a shared folder: `["ssh", "host"]`.
    remote: Vec<Argument>,
    /// Python to start on that machine. Default: `python3`.
    python: Option<String>,
    /// Paths of this project's folders as seen by the ranks: the absolute path, and the folder
    /// here, relative to this file.
    paths: BTreeMap<String, PathInside>,
}

impl Table {
    fn launcher(self) -> Result<Launcher, String> {
        let text = |words: Vec<Argument>| {
            words.into_iter().map(|word| word.as_str().to_owned()).collect::<Vec<String>>()
        };
        Launcher {
            command: text(self.command),
            remote: text(self.remote),
            python: self.python,
            paths: self.paths,
        }
        .checked()
    }
}

impl<'de> Deserialize<'de> for Launcher {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Launcher;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a list such as [\"torchrun\", \"--nproc-per-node\", \"2\"], or a table",
                )
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Launcher, A::Error> {
                let command = Vec::<Argument>::deserialize(SeqAccessDeserializer::new(list))?;
                let table = Table { command, ..Table::default() };
                table.launcher().map_err(de::Error::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Launcher, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                table.launcher().map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Launcher {
    fn schema_name() -> Cow<'static, str> {
        "Launcher".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = Table::json_schema(generator);
        json_schema!({"anyOf": [
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            table,
        ]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(line: &str, expected: Expect) {
        let said = match Launcher::parse(line) {
            Ok(found) => format!("{:?} | {:?}", found.remote, found.command),
            Err(why) => format!("error: {why}"),
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn lines_are_parsed_like_a_shell() {
        check(
            "torchrun --nproc-per-node 2",
            expect![[r#"[] | ["torchrun", "--nproc-per-node", "2"]"#]],
        );
        check(
            r#"  srun -A 'my project' "a \"b\"" c\ d ''"#,
            expect![[r#"[] | ["srun", "-A", "my project", "a \"b\"", "c d", ""]"#]],
        );
        check(
            r#""C:\Program Files\x\srun.exe" -o 'D:\y' # two"#,
            expect![[r#"[] | ["C:\\Program Files\\x\\srun.exe", "-o", "D:\\y"]"#]],
        );
        check("srun 'x", expect!["error: a quote is not closed"]);
        check(" ", expect!["error: the launcher has no program"]);
        check("-x", expect!["error: the launcher must start with a program name"]);
    }

    #[test]
    fn a_leading_ssh_is_the_remote_prefix() {
        check(
            "ssh -p 22 -o A=b me@host torchrun x",
            expect![[r#"["ssh", "-p", "22", "-o", "A=b", "me@host"] | ["torchrun", "x"]"#]],
        );
        check("/usr/bin/ssh -vp2 host", expect![[r#"["/usr/bin/ssh", "-vp2", "host"] | []"#]]);
        check("ssh -p 22", expect!["error: the launcher's `ssh` has no host"]);
    }

    #[test]
    fn folders_are_mapped_to_the_paths_of_the_ranks() {
        let text = "[launcher]\nremote = [\"ssh\", \"h\"]\npaths = { \"/there\" = \".\", \"/d\" = \"data\" }";
        let config = super::super::load::parse(text).expect("it is right");
        let launcher = config.launcher.expect("there is one").of_project(Path::new("/here"));
        let paths: Vec<_> = launcher.paths.into_iter().collect();
        assert_eq!(paths, [("/here".into(), "/there".into()), ("/here/data".into(), "/d".into())]);
        assert_eq!(launcher.python, REMOTE_PYTHON);
    }

    #[test]
    fn mistakes_are_reported() {
        let said = |text: &str| super::super::load::parse(text).expect_err("it is wrong").message;
        expect!["invalid type: integer `3`, expected a list such as [\"torchrun\", \"--nproc-per-node\", \"2\"], or a table"]
            .assert_eq(&said("launcher = 3"));
        expect!["the launcher has no program"].assert_eq(&said("launcher = []"));
        expect!["`there` must be an absolute path, as seen by the ranks"]
            .assert_eq(&said("[launcher]\ncommand = [\"srun\"]\npaths = { there = \".\" }"));
        assert!(said("[launcher]\ncomand = [\"srun\"]").contains("unknown field `comand`"));
    }
}
