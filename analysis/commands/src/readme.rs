//! Finds the commands in a README.

use super::shell::{InitialState, commands};
use super::{
    FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, program_command,
};

/// Languages of code blocks that contain commands; a code block may have none.
const SHELLS: [&str; 15] = [
    "",
    "bash",
    "sh",
    "shell",
    "console",
    "shell-session",
    "shellsession",
    "sh-session",
    "zsh",
    "terminal",
    "commandline",
    "cmdline",
    "text",
    "cmd",
    "powershell",
];

/// Returns the Python programs and shell scripts that a README starts: those of its code blocks,
/// then those in its sentences, which are often variants.
pub fn in_readme(text: &str, installed: &InstalledCommands) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let (mut found, mut in_sentences) = (Vec::new(), Vec::new());
    let mut block: Option<Block> = None;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let trimmed = line.trim_start();
        match &mut block {
            Some(Block { fence: Some(fence), .. }) if trimmed.starts_with(fence.as_str()) => {
                found.extend(block.take().into_iter().flat_map(|block| block.commands(installed)));
            }
            Some(open @ Block { fence: Some(_), .. }) => open.push(line),
            Some(open)
                if line.starts_with("    ") || line.starts_with('\t') || trimmed.is_empty() =>
            {
                open.push(line);
            }
            _ => {
                found.extend(block.take().into_iter().flat_map(|block| block.commands(installed)));
                let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
                // Some close the block on the same line.
                let is_open = |mark: &&str| !trimmed.trim_start_matches(*mark).contains(*mark);
                if let Some(mark) = mark.filter(is_open) {
                    let fence: String =
                        trimmed.chars().take_while(|c| mark.starts_with(*c)).collect();
                    let language = trimmed.trim_start_matches(fence.as_str()).trim();
                    let language = language.split([' ', '{', ',']).next().unwrap_or_default();
                    let is_shell = SHELLS.contains(&language.to_ascii_lowercase().as_str());
                    let lines = Vec::new();
                    block = Some(Block { fence: Some(fence), first: number + 1, is_shell, lines });
                } else if line.starts_with("    ") || line.starts_with('\t') {
                    let lines = vec![line.to_owned()];
                    block = Some(Block { fence: None, first: number, is_shell: true, lines });
                } else {
                    in_sentences.extend(inline(line, number, installed));
                }
            }
        }
        if found.len() + in_sentences.len() >= MAX_COMMANDS {
            break;
        }
    }
    found.extend(block.into_iter().flat_map(|block| block.commands(installed)));
    found.extend(in_sentences);
    found
}

struct Block {
    fence: Option<String>,
    first: u32,
    is_shell: bool,
    lines: Vec<String>,
}

impl Block {
    fn push(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    fn commands(self, installed: &InstalledCommands) -> Vec<FoundCommand> {
        // If some lines have a prompt, the others are output.
        let has_prompts = self.lines.iter().any(|line| without_prompt(line).is_some());
        let mut continues = false;
        let mut text = String::new();
        for line in &self.lines {
            // As in a cell of a notebook: `!python train.py`.
            let line = line.trim_start().strip_prefix('!').unwrap_or(line);
            // A shell would end the command here, but people read on.
            if continues && line.trim_start().starts_with('#') {
                text.push_str("\\\n");
                continue;
            }
            let command = match without_prompt(line) {
                Some(command) => command,
                None if has_prompts && !continues => "",
                // A block in another language may have commands, too.
                None if !self.is_shell && !continues && !is_python_with_script(line) => "",
                None => line.trim(),
            };
            // The shell joins the lines as they are: the indentation separates the words.
            if continues && line.starts_with(char::is_whitespace) {
                text.push(' ');
            }
            continues = command.ends_with('\\');
            text.push_str(command);
            text.push('\n');
        }
        let first = self.first.saturating_sub(1);
        let found = commands(&text, InitialState::default());
        found
            .into_iter()
            .filter_map(|mut command| {
                command.line += first;
                program_command(&command, None, installed)
            })
            .collect()
    }
}

/// Returns the text after `$ `, `> `, `(venv) $ `, `user@host:~$ `.
fn without_prompt(line: &str) -> Option<&str> {
    const MAX_BYTES: usize = 40;
    let line = line.trim_start();
    let at = line.find(['$', '%', '❯', '➜']).filter(|at| *at < MAX_BYTES)?;
    let (before, rest) = line.split_at(at);
    let rest = rest.get(rest.chars().next()?.len_utf8()..)?;
    let is_prompt = before.is_empty()
        || before.starts_with('(') && before.trim_end().ends_with(')')
        || before.contains('@') && !before.contains(' ');
    (is_prompt && rest.starts_with(' ')).then(|| rest.trim())
}

/// `` `python train.py` `` in a sentence, or `* python train.py --lr 0.1`.
fn inline(line: &str, number: u32, installed: &InstalledCommands) -> Vec<FoundCommand> {
    const MAX_BYTES: usize = 2_000;
    if line.len() > MAX_BYTES {
        return Vec::new();
    }
    let item = ["* ", "- ", "+ "].iter().find_map(|bullet| line.trim_start().strip_prefix(bullet));
    let item = item.filter(|item| !item.contains('`') && is_python_with_script(item));
    let spans = line.split('`').skip(1).step_by(2);
    spans
        // `train.py arguments` without an interpreter or an option is prose.
        .filter(|span| {
            span.contains(' ') && (!begins_with_script(span) || span.contains(" -"))
                || span.ends_with(".sh")
        })
        .chain(item)
        .flat_map(|span| commands(span, InitialState::default()))
        .filter_map(|mut command| {
            command.line = number;
            program_command(&command, None, installed)
        })
        .collect()
}

fn begins_with_script(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|first| first.ends_with(".py"))
}

/// `python train.py …`, rather than a sentence about Python.
fn is_python_with_script(text: &str) -> bool {
    let mut words = text.split_whitespace();
    matches!(words.next(), Some("python" | "python3" | "torchrun"))
        && words.any(|word| word.ends_with(".py") || word == "-m")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::display;
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&display(&in_readme(text, &InstalledCommands::new())));
    }

    #[test]
    fn fences() {
        check(
            "# Train\n\n```bash\npip install -r requirements.txt\npython train.py --lr 0.1\n```\n\n\
             ```python\nimport no\npython yes.py\n```\n~~~\npython -m pkg.train \\\n  --x 1\n~~~\n",
            expect![[r#"
                5: <python> Script("train.py") [--lr|0.1]
                10: <python> Script("yes.py") []
                13: <python> Module("pkg.train") [--x|1]"#]],
        );
        check(
            "1. do\n   ```sh\n   cd a\n   python b.py\n   ```\n",
            expect![[r#"4: in a/: <python> Script("b.py") []"#]],
        );
        check(
            "```\npython never_closed.py\n",
            expect![[r#"2: <python> Script("never_closed.py") []"#]],
        );
    }

    #[test]
    fn fence_on_one_line() {
        check(
            "# Usage\n\n```python train.py```\n\n```\npython b.py\n```\n",
            expect![[r#"
                6: <python> Script("b.py") []
                3: <python> Script("train.py") []"#]],
        );
    }

    #[test]
    fn comments_within_a_command() {
        check(
            "```bash\npython train.py \\\n    # the folder of the data\n    --data data/ \\\n    \
             # a small model\n    --width 8\n    # the end\n```\n",
            expect![[r#"2: <python> Script("train.py") [--data|data/|--width|8]"#]],
        );
    }

    #[test]
    fn continued_lines() {
        check(
            "```sh\npython3 -m pkg.scripts.train\\\n       --data_dir=./data\\\n       --dataset MNIST\n```\n",
            expect![[
                r#"2: <python3> Module("pkg.scripts.train") [--data_dir=./data|--dataset|MNIST]"#
            ]],
        );
    }

    #[test]
    fn shell_scripts() {
        check(
            "```\nsh scripts/weather.sh\nbash ./run.sh 64 --lr 1\n./train.sh <folder>\n```\n\
             Or run `scripts/all.sh`.\n",
            expect![[r#"
                2: Shell("scripts/weather.sh") []
                3: Shell("./run.sh") [64|--lr|1]
                4: Shell("./train.sh") [] incomplete
                6: Shell("scripts/all.sh") []"#]],
        );
    }

    #[test]
    fn prompts() {
        check(
            "```console\n$ python train.py --x\nepoch 1\npython said this.py\n(venv) $ python b.py\n```\n",
            expect![[r#"
                2: <python> Script("train.py") [--x]
                5: <python> Script("b.py") []"#]],
        );
    }

    #[test]
    fn other_blocks() {
        check(
            "Run it:\n\n    python main.py --cuda  # with a GPU\n\nor `python x.py --y 2` here.\n",
            expect![[r#"
                3: <python> Script("main.py") [--cuda]
                5: <python> Script("x.py") [--y|2]"#]],
        );
        check(
            "Usage::\n\n    $ torchrun --nproc_per_node=4 train.py config.yaml\n",
            expect![[r#"3: by [torchrun|--nproc_per_node=4] Script("train.py") [config.yaml]"#]],
        );
    }

    #[test]
    fn placeholders() {
        check(
            "```\npython main.py --data <path> [--cuda]\npython a.py --data /path/to/x\n\
             python b.py --image </a/path> --out <out>\npython c.py </dev/null >log\n\
             python d.py --resume \"comet://YOUR_PROJECT\" --layers \"[1, 2]\"\n\
             python e.py --layers \"[1, 2]\"\n```\n",
            expect![[r#"
                2: <python> Script("main.py") [] incomplete
                3: <python> Script("a.py") [] incomplete
                4: <python> Script("b.py") [] incomplete
                5: <python> Script("c.py") []
                6: <python> Script("d.py") [] incomplete
                7: <python> Script("e.py") [--layers|[1, 2]]"#]],
        );
        check("```\npython $SCRIPT --x\npython <script>.py\n```\n", expect![""]);
    }

    #[test]
    fn hostile_texts() {
        check("```\npython a.py \u{1b}[31mred\u{1b}[0m\n```\n", expect![""]);
        assert_eq!(in_readme(&"x".repeat(10 << 20), &InstalledCommands::new()), []);
        let one = format!("```\n{}\n```\n", "python a.py ; ".repeat(15_000));
        assert!(in_readme(&one, &InstalledCommands::new()).len() <= 500);
        let _ = in_readme(&"```\n".repeat(60_000), &InstalledCommands::new());
        let _ = in_readme(&"`".repeat(200_000), &InstalledCommands::new());
    }

    #[test]
    fn as_in_a_notebook() {
        check(
            "```\n!pip install x\n!python train.py --lr 1\n```\n```python\n!python b.py\n```\n",
            expect![[r#"
                3: <python> Script("train.py") [--lr|1]
                6: <python> Script("b.py") []"#]],
        );
    }

    #[test]
    fn commands_that_the_package_installs() {
        let name = "net-train".to_owned();
        let installed = InstalledCommands::from([(name, "net.cli:main".to_owned())]);
        let text = "    pip install net\n    uv run net-train --out runs/a\n\n`net-train --lr 1`, `net-eval --lr 1`\n";
        expect![[r#"
            2: <uv run> Function("net.cli:main") [--out|runs/a]
            4: Function("net.cli:main") [--lr|1]"#]]
        .assert_eq(&display(&in_readme(text, &installed)));
    }
}
