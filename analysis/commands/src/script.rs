//! Finds the programs that a shell script starts.

use super::shell::{InitialState, commands};
use super::{
    FoundCommand, InstalledCommands, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, Program, python_command,
};

/// Returns the Python programs that a shell script starts when it has no arguments.
pub fn in_shell_script(text: &str, installed: &InstalledCommands) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let found = commands(
        text,
        InitialState { positional: Some(&[]), own_folder: Some(""), ..InitialState::default() },
    );
    let found = found.iter().filter_map(|command| python_command(command, None, installed));
    found.take(MAX_COMMANDS).collect()
}

/// Returns the Python programs that a shell script starts with these arguments.
pub fn shell_script_with(
    text: &str,
    arguments: &[String],
    installed: &InstalledCommands,
) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let initial = InitialState { positional: Some(arguments), ..InitialState::default() };
    let found = commands(text, initial);
    let found = found.iter().filter_map(|command| python_command(command, None, installed));
    found.take(MAX_COMMANDS).collect()
}

/// Returns the Python programs that a command in another file starts through this shell script, in
/// the folder and with the environment of that command.
pub fn started_by_script(
    text: &str,
    starts: &FoundCommand,
    installed: &InstalledCommands,
) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let outer = &starts.command;
    // The arguments of an incomplete command are unknown.
    let positional = starts.is_complete.then_some(outer.arguments.as_slice());
    let own_folder = match &outer.program {
        Program::Shell(script) => Some(script.rsplit_once('/').map_or("", |(folder, _)| folder)),
        _ => None,
    };
    let found = commands(text, InitialState { positional, own_folder, ..InitialState::default() });
    let in_outer = |mut inner: FoundCommand| {
        let command = &mut inner.command;
        for (name, value) in &outer.environment {
            command.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let folder = [outer.folder.as_deref(), command.folder.as_deref()];
        let folder = folder.into_iter().flatten().collect::<Vec<_>>().concat();
        command.folder = Some(folder).filter(|folder| !folder.is_empty());
        inner
    };
    let found = found.iter().filter_map(|command| python_command(command, None, installed));
    found.map(in_outer).take(MAX_COMMANDS).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::{display, in_readme};
    use super::*;

    #[test]
    fn a_script_that_a_readme_starts() {
        let readme = "```\ncd lib\nGPU=0 sh scripts/a.sh 8\nsh scripts/a.sh <batch>\n```\n";
        let text = "for n in 96 192\ndo\n  python run.py --id $model_$n --n $n --b $1\ndone\n\
            python -m other.train\n";
        let started = in_readme(readme, &InstalledCommands::new());
        let started: Vec<String> = started
            .iter()
            .map(|starts| display(&started_by_script(text, starts, &InstalledCommands::new())))
            .collect();
        expect![[r#"
            3: GPU=0 in lib/: <python> Script("run.py") [--id|96|--n|96|--b|8]
            5: GPU=0 in lib/: <python> Module("other.train") []
            3: in lib/: <python> Script("run.py") [] incomplete
            5: in lib/: <python> Module("other.train") []"#]]
        .assert_eq(&started.join("\n"));
    }

    #[test]
    fn a_script_that_enters_its_own_folder() {
        let text = "cd \"$(dirname \"$0\")\"\npython main.py --iters 5\n";
        expect![[r#"2: <python> Script("main.py") [--iters|5]"#]]
            .assert_eq(&display(&in_shell_script(text, &InstalledCommands::new())));
        let text = "ROOT=\"$( cd -- \"$( dirname -- \"${BASH_SOURCE[0]}\" )/..\" &> /dev/null && pwd )\"\n\
            cd $ROOT\npython main.py\ncd $(dirname $1)\npython main.py\n";
        expect![[r#"3: in ./../: <python> Script("main.py") []"#]]
            .assert_eq(&display(&in_shell_script(text, &InstalledCommands::new())));
        let starts = in_readme("```\nbash scripts/a.sh\n```\n", &InstalledCommands::new());
        let text = "cd $(dirname $(readlink -f $0))\npython main.py\n";
        let started: Vec<String> = starts
            .iter()
            .map(|starts| display(&started_by_script(text, starts, &InstalledCommands::new())))
            .collect();
        expect![[r#"2: in scripts/: <python> Script("main.py") []"#]]
            .assert_eq(&started.join("\n"));
    }

    #[test]
    fn a_script_of_many_lines() {
        let text = "#!/bin/bash\nset -e\nexport WANDB_MODE=offline\nDATA=data\n\nmkdir -p $DATA\n\
            python prepare.py --out $DATA\nCUDA_VISIBLE_DEVICES=0 python -u train.py \\\n    \
            --data $DATA \\\n    --lr 3e-4 \"$@\"\npython eval.py --ckpt $CKPT\n";
        expect![[r#"
            7: WANDB_MODE=offline <python> Script("prepare.py") [--out|data]
            8: CUDA_VISIBLE_DEVICES=0 WANDB_MODE=offline <python> Script("train.py") [--data|data|--lr|3e-4]
            11: WANDB_MODE=offline <python> Script("eval.py") [] incomplete"#]].assert_eq(&display(&in_shell_script(text, &InstalledCommands::new())));
        expect![[r#"
            7: WANDB_MODE=offline <python> Script("prepare.py") [--out|data]
            8: CUDA_VISIBLE_DEVICES=0 WANDB_MODE=offline <python> Script("train.py") [--data|data|--lr|3e-4|--x]
            11: WANDB_MODE=offline <python> Script("eval.py") [] incomplete"#]].assert_eq(&display(&shell_script_with(text, &["--x".to_owned()], &InstalledCommands::new())));
    }
}
