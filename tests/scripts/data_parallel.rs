//! Applies the edits for several processes, and trains in two under torchrun.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

use super::machine_lock::shared;
use super::texts;
use crate::sandbox::{CommandResult, Sandbox, python_with_torch, repository, run_to_end};

/// The demo projects that can train in several processes, with arguments for a short run.
const DEMOS: [(&str, &[&str]); 4] = [
    ("bert", &["--sentences", "64"]),
    ("ncf", &[]),
    ("resnet", &["--images", "32"]),
    ("seq2seq", &["--epochs", "1"]),
];

const LAUNCHER: &str = "torchrun --standalone --nproc-per-node 2";

/// Saves the parameters. Its loader is in order, so that two processes with half the batch see the same batches.
const SCRIPT: &str = "\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

_, path, batch_size = sys.argv
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 2))
loader = DataLoader(data, batch_size=int(batch_size))
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(3):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('epoch', epoch)
torch.save(model.state_dict(), path)
";

/// Compares two files of parameters.
const COMPARE: &str = "\
import sys, torch
one, two = (torch.load(path) for path in sys.argv[1:3])
assert list(one) == list(two), (list(one), list(two))
tolerance = float(sys.argv[3])
for name, value in one.items():
    torch.testing.assert_close(value, two[name], rtol=tolerance, atol=tolerance)
if tolerance > 1e-4:
    assert any(not value.equal(two[name]) for name, value in one.items()), 'nothing was rounded'
";
/// The largest difference between runs that sum in another order.
const EXACT: &str = "1e-5";
/// The largest difference between runs with float32 and with bfloat16 gradients.
const ROUNDED: &str = "1e-2";

/// Writes a program with edits.
#[track_caller]
fn edited(texts: &HashMap<String, Arc<str>>, kinds: &[EditKind]) -> Sandbox {
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let mut texts = texts.clone();
    for kind in kinds {
        let request = Request { kind: *kind, lines: &[], count: None };
        for file in &rewrite(&texts, &entry, &request).expect("an edit").files {
            let after = file.applied(&texts[&file.path]);
            texts.insert(file.path.clone(), after.into());
        }
    }
    let sandbox = Sandbox::new();
    for (name, text) in &texts {
        sandbox.write(name, text.as_bytes());
    }
    sandbox
}

/// Trains with edits in two processes, and returns the file of the parameters.
#[track_caller]
fn parameters(python: &Path, script: &str, kinds: &[EditKind]) -> (Sandbox, PathBuf) {
    let texts = HashMap::from([("train.py".to_owned(), Arc::from(script))]);
    let sandbox = edited(&texts, kinds);
    train(&sandbox, python, 2, &["out.pt", "4"]);
    let file = sandbox.project().join("out.pt");
    (sandbox, file)
}

#[track_caller]
fn compare(python: &Path, one: &Path, two: &Path, tolerance: &str) {
    let mut compare = Command::new(python);
    compare.args(["-c", COMPARE]).arg(one).arg(two).arg(tolerance);
    run_to_end(&mut compare).exits_with(0);
}

/// Runs the script, in two processes or in one.
#[track_caller]
fn train(sandbox: &Sandbox, python: &Path, processes: u32, arguments: &[&str]) -> CommandResult {
    let mut command = Command::new(python);
    if processes > 1 {
        let count = processes.to_string();
        command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", &count]);
    }
    command.arg("train.py").args(arguments).current_dir(sandbox.project());
    command.env("OMP_NUM_THREADS", "1").env("CUDA_VISIBLE_DEVICES", "");
    run_to_end(&mut command).exits_with(0)
}

#[test]
fn two_processes_with_half_the_batch_train_the_same() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let texts = HashMap::from([("train.py".to_owned(), Arc::from(SCRIPT))]);
    let sandbox = edited(&texts, &[EditKind::DataParallel]);
    let printed = train(&sandbox, python, 2, &["two.pt", "4"]).stdout;
    assert_eq!(printed, "epoch 0\nepoch 1\nepoch 2\n");
    let printed = train(&sandbox, python, 1, &["one.pt", "8"]).stdout;
    assert_eq!(printed, "epoch 0\nepoch 1\nepoch 2\n");
    sandbox.write("train.py", SCRIPT);
    train(&sandbox, python, 1, &["original.pt", "8"]);
    let file = |name: &str| sandbox.project().join(name);
    compare(python, &file("original.pt"), &file("two.pt"), EXACT);
    compare(python, &file("original.pt"), &file("one.pt"), EXACT);
}

#[test]
fn compressed_gradients_train_almost_the_same() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let (_plain, plain) = parameters(python, SCRIPT, &[EditKind::DataParallel]);
    let both = [EditKind::DataParallel, EditKind::GradientCompression];
    let (_compressed, compressed) = parameters(python, SCRIPT, &both);
    compare(python, &plain, &compressed, ROUNDED);
}

/// The script wraps its model, and steps for every second batch.
#[test]
fn synchronizing_once_trains_the_same() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let script = SCRIPT
        .replace("torch.manual_seed(0)", "torch.distributed.init_process_group('gloo')\ntorch.manual_seed(torch.distributed.get_rank())")
        .replace("optimizer = ", "model = nn.parallel.DistributedDataParallel(model)\noptimizer = ")
        .replace("for x, y in loader:", "for step, (x, y) in enumerate(loader):")
        .replace("        optimizer.zero_grad()\n", "")
        .replace("        optimizer.step()\n", "        if step % 2 == 1:\n            optimizer.step()\n            optimizer.zero_grad()\n")
        .replace("torch.save", "if torch.distributed.get_rank() == 0:\n    torch.save");
    let (_before, before) = parameters(python, &script, &[]);
    let (edited, after) = parameters(python, &script, &[EditKind::Accumulate]);
    let text = std::fs::read_to_string(edited.project().join("train.py")).expect("the script");
    assert!(text.contains("no_sync"), "{text}");
    compare(python, &before, &after, EXACT);
}

#[test]
fn demos_train_in_two_processes() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    for (folder, arguments) in DEMOS {
        let sandbox = edited(
            &texts(&repository().join("demo-projects").join(folder)),
            &[EditKind::DataParallel],
        );
        let printed = train(&sandbox, python, 2, arguments).stdout;
        let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("epoch 0")).collect();
        // The first process prints.
        assert_eq!(lines.len(), 1, "{folder}: {printed}");
        assert!(!printed.contains("nan"), "{folder}: {printed}");
    }
}

/// BERT accumulates gradients, so the edit also synchronizes them once per step.
#[test]
fn the_edited_program_is_profiled_without_findings_about_the_edit() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let sandbox =
        edited(&texts(&repository().join("demo-projects/bert")), &[EditKind::DataParallel]);
    let mut command = sandbox.ridgeline();
    command.args(["profile", "train.py", "--device", "cpu", "--json", "-", "--launcher", LAUNCHER]);
    command.arg("--python").arg(python).env("OMP_NUM_THREADS", "1");
    let json: Value =
        serde_json::from_str(&run_to_end(&mut command).exits_with(0).stdout).expect("JSON");
    assert_eq!(json["ranks"]["ranks"].as_array().map(Vec::len), Some(2), "{}", json["ranks"]);
    let text = std::fs::read_to_string(sandbox.project().join("train.py")).expect("the script");
    let lines: Vec<&str> = text.lines().collect();
    for finding in json["findings"].as_array().expect("findings") {
        let line = finding["line"].as_u64().and_then(|line| lines.get(line as usize - 1));
        let is_of_the_edit = line.is_some_and(|line| {
            ["RANK", "no_sync", "DistributedDataParallel", "sampler"]
                .iter()
                .any(|it| line.contains(it))
        });
        assert!(!is_of_the_edit, "{finding:#}");
    }
}
