//! Finds the programs that a shell script starts.

use std::collections::BTreeMap;

use super::shell::{InitialState, commands};
use super::{FoundCommand, MAX_COMMAND_FILE_BYTES, MAX_COMMANDS, python_command};

/// Returns the Python programs that a shell script starts when it has no arguments.
pub fn in_shell_script(text: &str) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let found = commands(text, InitialState { positional: Some(&[]), variables: BTreeMap::new() });
    found.iter().filter_map(|command| python_command(command, None)).take(MAX_COMMANDS).collect()
}

/// Returns the Python programs that a shell script starts with these arguments.
pub fn shell_script_with(text: &str, arguments: &[String]) -> Vec<FoundCommand> {
    if text.len() > MAX_COMMAND_FILE_BYTES {
        return Vec::new();
    }
    let initial = InitialState { positional: Some(arguments), variables: BTreeMap::new() };
    let found = commands(text, initial);
    found.iter().filter_map(|command| python_command(command, None)).take(MAX_COMMANDS).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::display;
    use super::*;

    #[test]
    fn a_script_of_many_lines() {
        let text = "#!/bin/bash\nset -e\nexport WANDB_MODE=offline\nDATA=data\n\nmkdir -p $DATA\n\
            python prepare.py --out $DATA\nCUDA_VISIBLE_DEVICES=0 python -u train.py \\\n    \
            --data $DATA \\\n    --lr 3e-4 \"$@\"\npython eval.py --ckpt $CKPT\n";
        expect![[r#"
            7: WANDB_MODE=offline <python> Script("prepare.py") [--out|data]
            8: CUDA_VISIBLE_DEVICES=0 WANDB_MODE=offline <python> Script("train.py") [--data|data|--lr|3e-4]
            11: WANDB_MODE=offline <python> Script("eval.py") [] incomplete"#]].assert_eq(&display(&in_shell_script(text)));
        expect![[r#"
            7: WANDB_MODE=offline <python> Script("prepare.py") [--out|data]
            8: CUDA_VISIBLE_DEVICES=0 WANDB_MODE=offline <python> Script("train.py") [--data|data|--lr|3e-4|--x]
            11: WANDB_MODE=offline <python> Script("eval.py") [] incomplete"#]].assert_eq(&display(&shell_script_with(text, &["--x".to_owned()])));
    }
}
