//! Applies every edit to every demo project: refused edits are the expected ones, and edited programs
//! still train.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use ridgeline_analysis::optimize::rewrite::{EditKind, Refusal, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;
use serde_json::Value;

use super::machine_lock::shared;
use super::texts;
use crate::sandbox::{Sandbox, python_with_torch, repository, run_to_end};

/// A demo project and its refused edits, each with the beginning of the expected message.
struct Demo {
    folder: &'static str,
    script: &'static str,
    refused: &'static [(&'static str, &'static str)],
}

const IS_NONE: (&str, &str) = ("zero-grad-none", "done: ");
const NO_IMAGES: (&str, &str) = ("channels-last", "no 2D convolution");
const NO_BLOCKS: (&str, &str) = ("recompute", "no repeated blocks");
const NO_WORKERS: (&str, &str) = ("loader-workers", "no DataLoader");
const NO_PINNING: (&str, &str) = ("pinned-memory", "no DataLoader");
const NOT_PREFETCHED: (&str, &str) = ("prefetch", "no DataLoader");
const COPIES_A_DICTIONARY: (&str, &str) = ("prefetch", "train.py:");

const ACCUMULATES: (&str, &str) = ("cuda-graphs", "train.py:");
const SEVERAL_STEPS: (&str, &str) =
    ("cuda-graphs", "the program calls backward() in several places");

const NO_LOADER: (&str, &str) = ("data-parallel", "no DataLoader");
const SEVERAL_OPTIMIZERS: (&str, &str) = ("data-parallel", "the program has several optimizers");
const IS_A_PROVIDER: (&str, &str) = ("data-parallel", "a provider");
const NOT_COMPRESSED: (&str, &str) = ("gradient-compression", "no DistributedDataParallel");
const NOT_WRAPPED: (&str, &str) = ("accumulate", "no DistributedDataParallel");
const SEVERAL_PASSES: (&str, &str) =
    ("accumulate", "the program calls backward() in several places");
const STEPS_EACH_TIME: (&str, &str) = ("accumulate", "train.py:");
const SYNCHRONIZES_ONCE: (&str, &str) = ("accumulate", "done: ");

const DEMOS: [Demo; 7] = [
    Demo {
        folder: "bert",
        script: "train.py",
        refused: &[IS_NONE, NO_IMAGES, ACCUMULATES, SYNCHRONIZES_ONCE, COPIES_A_DICTIONARY],
    },
    Demo {
        folder: "dcgan",
        script: "train.py",
        refused: &[
            IS_NONE,
            NO_BLOCKS,
            SEVERAL_STEPS,
            SEVERAL_OPTIMIZERS,
            SEVERAL_PASSES,
            NOT_COMPRESSED,
        ],
    },
    Demo {
        folder: "gpt",
        script: "train.py",
        refused: &[
            IS_NONE,
            NO_IMAGES,
            NO_WORKERS,
            NO_PINNING,
            NOT_PREFETCHED,
            NO_LOADER,
            NOT_WRAPPED,
            NOT_COMPRESSED,
        ],
    },
    Demo {
        folder: "ncf",
        script: "train.py",
        refused: &[IS_NONE, NO_IMAGES, NO_BLOCKS, STEPS_EACH_TIME],
    },
    Demo {
        folder: "resnet",
        script: "train.py",
        refused: &[IS_NONE, ("pinned-memory", "done: "), STEPS_EACH_TIME],
    },
    Demo {
        folder: "resnet",
        script: "skyline_provider.py",
        refused: &[
            IS_NONE,
            NO_WORKERS,
            NO_PINNING,
            NOT_PREFETCHED,
            IS_A_PROVIDER,
            NOT_WRAPPED,
            NOT_COMPRESSED,
        ],
    },
    Demo { folder: "seq2seq", script: "train.py", refused: &[IS_NONE, NO_IMAGES, STEPS_EACH_TIME] },
];

/// Applies one edit to a demo project and returns whether it was applied. A refusal has to be an expected
/// one.
#[track_caller]
fn edit(texts: &mut HashMap<String, Arc<str>>, demo: &Demo, kind: EditKind) -> bool {
    let entry = Entry {
        path: demo.script.to_owned(),
        provider: demo.script.contains("provider"),
        ..Entry::default()
    };
    let name = kind.name();
    let expected = demo.refused.iter().find(|(refused, _)| *refused == name);
    // Two workers: the machines that run tests are small.
    let request = Request { kind, lines: &[], count: Some(2) };
    match (rewrite(texts, &entry, &request), expected) {
        (Ok(rewritten), None) => {
            for file in &rewritten.files {
                let after = file.applied(&texts[&file.path]);
                texts.insert(file.path.clone(), after.into());
            }
            true
        }
        (Err(refusal), Some((_, expected))) => {
            let message = match refusal {
                Refusal::Done(what) => format!("done: {what}"),
                Refusal::NotUnderstood(why) => why,
            };
            assert!(message.starts_with(expected), "{name} of {}: {message}", demo.folder);
            false
        }
        (rewritten, expected) => {
            panic!("{name} of {}/{}: {rewritten:#?}, not {expected:?}", demo.folder, demo.script)
        }
    }
}

/// Profiles texts, and asserts that they were measured and print no NaN or infinite loss.
#[track_caller]
fn trains(texts: &HashMap<String, Arc<str>>, script: &str, about: &str) {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let sandbox = Sandbox::new();
    for (name, text) in texts {
        sandbox.write(name, text.as_bytes());
    }
    let mut command = sandbox.ridgeline();
    command.args(["profile", script, "--device", "cpu", "--iterations", "1", "--json", "-"]);
    // Compiling a network in 16-bit types for one thread takes more than the default on some CPUs.
    command.args(["--seconds", "600"]);
    // One thread, because concurrent tests measure times.
    command.arg("--python").arg(python).env("OMP_NUM_THREADS", "1");
    let result = run_to_end(&mut command);
    assert_eq!(result.code, Some(0), "{about}:\n{}\n{}", result.stdout, result.stderr);
    let json: Value = serde_json::from_str(&result.stdout).expect("JSON");
    let time = json["iteration"]["time_ms"].as_f64();
    assert!(time > Some(0.0), "{about}: {json}");
    let printed = printed(&sandbox.path("cache"));
    assert!(!printed.contains("nan") && !printed.contains("loss inf"), "{about}: {printed}");
}

/// Returns the output of programs, from the logs below a folder.
fn printed(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let path = entry.path();
            match path.is_dir() {
                true => printed(&path),
                false if path.file_name().is_some_and(|name| name == "log.txt") => {
                    String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned()
                }
                false => String::new(),
            }
        })
        .collect()
}

/// Makes `torch.compile` use a backend that is fast and needs no C++ compiler.
fn use_eager_backend(texts: &mut HashMap<String, Arc<str>>) {
    let soon = "__import__(\"functools\").partial(torch.compile, backend=\"eager\")(";
    for text in texts.values_mut() {
        *text = text.replace("torch.compile(", soon).into();
    }
}

/// Tries a recurrent layer in float16: oneDNN has none for many CPUs, also for some that it reports to
/// have float16 instructions.
const TRY_FLOAT16: &str = "
import torch
with torch.autocast('cpu', dtype=torch.float16):
    torch.nn.LSTM(8, 8)(torch.randn(2, 3, 8))[0].sum().backward()
";

/// Replaces float16 by bfloat16 where PyTorch has no recurrent layers in float16.
fn use_supported_half_type(texts: &mut HashMap<String, Arc<str>>) {
    static HAS_FLOAT16: OnceLock<bool> = OnceLock::new();
    let has_float16 = || {
        let Some(python) = python_with_torch() else { return true };
        let answer = Command::new(python).args(["-c", TRY_FLOAT16]).output().expect("Python runs");
        let printed = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.success() || printed.contains("primitive descriptor"), "{printed}");
        answer.status.success()
    };
    if *HAS_FLOAT16.get_or_init(has_float16) {
        return;
    }
    for text in texts.values_mut() {
        *text = text.replace("dtype=torch.float16", "dtype=torch.bfloat16").into();
    }
}

/// Applies compatible edits to one demo project in turn, and checks that it trains.
#[track_caller]
fn check(demo: &Demo, kinds: &[EditKind]) {
    let mut texts = texts(&repository().join("demo-projects").join(demo.folder));
    let rewritten = kinds.iter().filter(|kind| edit(&mut texts, demo, **kind));
    let rewritten: Vec<&str> = rewritten.map(|kind| kind.name()).collect();
    use_eager_backend(&mut texts);
    use_supported_half_type(&mut texts);
    let about = format!("{} of {}/{}", rewritten.join(", "), demo.folder, demo.script);
    trains(&texts, demo.script, &about);
}

/// The edits in groups, because a run takes seconds and the edits of each group are compatible.
const FIRST: [EditKind; 6] = [
    EditKind::AutocastBFloat16,
    EditKind::FusedOptimizer,
    EditKind::Tf32,
    EditKind::Checkpoint,
    EditKind::LoaderWorkers,
    EditKind::ZeroGradToNone,
];
const SECOND: [EditKind; 5] = [
    EditKind::AutocastFloat16,
    EditKind::ForeachOptimizer,
    EditKind::ChannelsLast,
    EditKind::PinnedMemory,
    EditKind::Compile,
];
const THIRD: [EditKind; 1] = [EditKind::Offload];
/// Prefetching removes the copies that `SECOND` makes non-blocking.
const FOURTH: [EditKind; 2] = [EditKind::CudaGraphs, EditKind::Prefetch];
/// In one process, the edited program trains as before. `data_parallel` runs two.
const FIFTH: [EditKind; 3] =
    [EditKind::DataParallel, EditKind::Accumulate, EditKind::GradientCompression];

#[test]
fn the_groups_cover_all_edits() {
    // No demo project writes attention out; `attention.rs` has programs that do.
    let others = [EditKind::FusedAttention];
    let all = [&FIRST[..], &SECOND, &THIRD, &FOURTH, &FIFTH, &others].concat();
    assert!(EditKind::ALL.iter().all(|kind| all.contains(kind)));
}

#[test]
fn every_demo_trains_with_the_first_group() {
    DEMOS.iter().for_each(|demo| check(demo, &FIRST));
}

#[test]
fn every_demo_trains_with_the_second_group() {
    DEMOS.iter().for_each(|demo| check(demo, &SECOND));
}

/// No demo project sets gradients to zero. This program does so in two ways.
#[test]
fn gradients_to_none_still_train() {
    let script = "\
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
extra = torch.zeros(8, requires_grad=True)
for step in range(100):
    loss = (model(torch.randn(4, 8)) + extra).square().mean()
    optimizer.zero_grad(set_to_none=False)
    if extra.grad is not None:
        extra.grad.zero_()
    loss.backward()
    optimizer.step()
    print('loss', loss.item())
";
    let mut texts = HashMap::from([("train.py".to_owned(), Arc::from(script))]);
    let demo = Demo { folder: "none", script: "train.py", refused: &[] };
    assert!(edit(&mut texts, &demo, EditKind::ZeroGradToNone));
    assert!(texts["train.py"].contains("extra.grad = None"));
    trains(&texts, "train.py", "zero-grad-none");
}

#[test]
fn every_demo_trains_with_the_third_group() {
    DEMOS.iter().for_each(|demo| check(demo, &THIRD));
}

#[test]
fn every_demo_trains_with_the_fourth_group() {
    DEMOS.iter().for_each(|demo| check(demo, &FOURTH));
}

#[test]
fn every_demo_trains_with_the_fifth_group() {
    DEMOS.iter().for_each(|demo| check(demo, &FIFTH));
}
