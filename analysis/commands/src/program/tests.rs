use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(line: &str, expected: Expect) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let shown = match read_command(&words) {
        Ok(command) => command.display_for_tests(),
        Err(refusal) => format!("refused: {}. {}", refusal.what, refusal.next),
    };
    expected.assert_eq(&shown);
}

#[test]
fn python_and_its_options() {
    check(
        "python train.py --lr 0.1 -m x",
        expect![[r#"<python> Script("train.py") [--lr|0.1|-m|x]"#]],
    );
    check("python3.11 -u -W ignore train.py", expect![[r#"<python3.11> Script("train.py") []"#]]);
    check(
        "python -Wignore -X dev -OO -um pkg.train --x",
        expect![[r#"<python> ["-X dev", "-O", "-O"] Module("pkg.train") [--x]"#]],
    );
    check(".venv/bin/python train.py", expect![[r#"<.venv/bin/python> Script("train.py") []"#]]);
    check(
        r"C:\venv\Scripts\python.exe train.py",
        expect![[r#"<C:\venv\Scripts\python.exe> Script("train.py") []"#]],
    );
    check("py -3.11 train.py", expect![[r#"<py> Script("train.py") []"#]]);
    check(
        "python -m pdb -c continue train.py --x 1",
        expect![[r#"<python> Script("train.py") [--x|1]"#]],
    );
    check("train.py --x", expect![[r#"Script("train.py") [--x]"#]]);
    check(
        "python -c print(1)",
        expect![
            "refused: `python -c` does not run a file, so there are no source lines to show costs on. Save the code to a script and profile that script"
        ],
    );
    check(
        "python",
        expect![
            "refused: `python` does not run a program. For example: `ridgeline profile -- python train.py --epochs 1`"
        ],
    );
    check(
        "python --version",
        expect![
            "refused: `python --version` does not run a program. For example: `ridgeline profile -- python train.py --epochs 1`"
        ],
    );
}

#[test]
fn wrappers_and_variables() {
    check(
        "CUDA_VISIBLE_DEVICES=0 A=b python train.py",
        expect![[r#"A=b CUDA_VISIBLE_DEVICES=0 <python> Script("train.py") []"#]],
    );
    check("env A=1 python train.py", expect![[r#"A=1 <python> Script("train.py") []"#]]);
    check("nohup nice -n 10 python train.py", expect![[r#"<python> Script("train.py") []"#]]);
    check("timeout 60 python train.py", expect![[r#"<python> Script("train.py") []"#]]);
}

#[test]
fn environment_tools() {
    check("uv run train.py --x", expect![[r#"<uv run> Script("train.py") [--x]"#]]);
    check(
        "uv run --with rich --python 3.12 python -m pkg.train",
        expect![[r#"<python> <uv run> Module("pkg.train") []"#]],
    );
    check("uv run -m pkg.train a", expect![[r#"<uv run> Module("pkg.train") [a]"#]]);
    check(
        "uv --directory sub run torchrun --nproc-per-node 2 train.py",
        expect![[r#"in sub: <uv run> by [torchrun|--nproc-per-node|2] Script("train.py") []"#]],
    );
    check(
        "poetry run python train.py",
        expect![[r#"<python> <poetry run> Script("train.py") []"#]],
    );
    check("poetry run train-model --x", expect![[r#"<poetry run> Other("train-model") [--x]"#]]);
    check(
        "conda run -n ml --no-capture-output python train.py",
        expect![[r#"<python> <conda run> Script("train.py") []"#]],
    );
    check(
        "uv pip install torch",
        expect![
            "refused: `uv pip` does not run a program. Use `uv run`: `ridgeline profile -- uv run python train.py`"
        ],
    );
}

#[test]
fn launchers() {
    check(
        "torchrun --nproc-per-node 2 --standalone train.py --x 1",
        expect![[r#"by [torchrun|--nproc-per-node|2|--standalone] Script("train.py") [--x|1]"#]],
    );
    check(
        "torchrun --nproc_per_node=2 -m pkg.train --x",
        expect![[r#"by [torchrun|--nproc_per_node=2] Module("pkg.train") [--x]"#]],
    );
    check(
        "python -m torch.distributed.run --nproc-per-node 2 train.py",
        expect![[
            r#"<python> by [python|-m|torch.distributed.run|--nproc-per-node|2] Script("train.py") []"#
        ]],
    );
    check(
        "accelerate launch --multi_gpu --num_processes 2 train.py --y",
        expect![[
            r#"by [accelerate|launch|--multi_gpu|--num_processes|2] Script("train.py") [--y]"#
        ]],
    );
    check(
        "accelerate launch train.py",
        expect![[r#"by [accelerate|launch] Script("train.py") []"#]],
    );
    check("accelerate config", expect![[r#"Other("accelerate") [config]"#]]);
    check(
        "deepspeed --num_gpus 2 train.py --deepspeed ds.json",
        expect![[r#"by [deepspeed|--num_gpus|2] Script("train.py") [--deepspeed|ds.json]"#]],
    );
    check(
        "srun -N 2 --gres gpu:4 python -u train.py",
        expect![[r#"<python> by [srun|-N|2|--gres|gpu:4] Script("train.py") []"#]],
    );
    check(
        "srun -N 2 torchrun --nnodes 2 train.py",
        expect![[r#"by [srun|-N|2|torchrun|--nnodes|2] Script("train.py") []"#]],
    );
    check("fabric run --strategy ddp train.py", expect![[r#"Script("train.py") []"#]]);
    check(
        "torchrun --nproc-per-node 2",
        expect![
            "refused: the launcher is given no script. For example: `ridgeline profile -- python train.py --epochs 1`"
        ],
    );
}

#[test]
fn other_programs() {
    check("./train.sh --x", expect![[r#"Shell("./train.sh") [--x]"#]]);
    check("bash -e scripts/train.sh 8", expect![[r#"Shell("scripts/train.sh") [8]"#]]);
    check("make train", expect![[r#"MakeTarget("train") []"#]]);
    check("litgpt finetune --config x", expect![[r#"Other("litgpt") [finetune|--config|x]"#]]);
    check(
        "docker run image python train.py",
        expect![
            "refused: a program started by `docker` cannot be profiled from outside. Run ridgeline where the program runs, and pass it the program"
        ],
    );
    check(
        "",
        expect![
            "refused: the command does not name a program. For example: `ridgeline profile -- python train.py --epochs 1`"
        ],
    );
}
