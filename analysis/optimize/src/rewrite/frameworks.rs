//! Libraries that run the training loop, and the arguments by which they apply an optimization.

use super::program::Program;
use super::{EditKind, Refusal};
use ridgeline_python::semantics::module::last_name;

/// A library, how its use is recognized, and its arguments.
struct Framework {
    name: &'static str,
    /// Packages from which it is imported.
    packages: &'static [&'static str],
    /// Classes and functions whose call indicates its use.
    calls: &'static [&'static str],
    /// The argument for each edit.
    arguments: &'static [(EditKind, &'static str)],
    /// How it trains on several GPUs.
    several_gpus: &'static str,
}

use EditKind::{
    AutocastBFloat16, AutocastFloat16, ChannelsLast, Compile, FusedOptimizer, LoaderWorkers,
    PinnedMemory, Tf32,
};

const FRAMEWORKS: [Framework; 5] = [
    Framework {
        name: "Lightning",
        packages: &["lightning", "pytorch_lightning"],
        calls: &["Trainer", "Fabric"],
        arguments: &[
            (AutocastBFloat16, "Trainer(precision=\"bf16-mixed\")"),
            (AutocastFloat16, "Trainer(precision=\"16-mixed\")"),
        ],
        several_gpus: "set Trainer(devices=N, strategy=\"ddp\")",
    },
    Framework {
        name: "transformers",
        packages: &["transformers", "trl"],
        calls: &["TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig"],
        arguments: &[
            (AutocastBFloat16, "bf16=True"),
            (AutocastFloat16, "fp16=True"),
            (Tf32, "tf32=True"),
            (FusedOptimizer, "optim=\"adamw_torch_fused\""),
            (Compile, "torch_compile=True"),
            (LoaderWorkers, "dataloader_num_workers=4"),
            (PinnedMemory, "dataloader_pin_memory=True"),
        ],
        several_gpus: "start it with `torchrun --nproc-per-node N`",
    },
    Framework {
        name: "accelerate",
        packages: &["accelerate"],
        calls: &["Accelerator"],
        arguments: &[
            (AutocastBFloat16, "Accelerator(mixed_precision=\"bf16\")"),
            (AutocastFloat16, "Accelerator(mixed_precision=\"fp16\")"),
        ],
        several_gpus: "start it with `accelerate launch --multi_gpu`",
    },
    Framework {
        name: "fastai",
        packages: &["fastai"],
        calls: &["Learner", "vision_learner", "cnn_learner", "text_classifier_learner"],
        arguments: &[
            (AutocastBFloat16, "learn.to_bf16()"),
            (AutocastFloat16, "learn.to_fp16()"),
            (ChannelsLast, "learn.to_channelslast()"),
        ],
        several_gpus: "start it with `accelerate launch` and use learn.distrib_ctx()",
    },
    Framework {
        name: "DeepSpeed",
        packages: &["deepspeed"],
        calls: &["initialize"],
        arguments: &[
            (AutocastBFloat16, "\"bf16\": {\"enabled\": true} in its configuration"),
            (AutocastFloat16, "\"fp16\": {\"enabled\": true} in its configuration"),
        ],
        several_gpus: "start it with `deepspeed --num_gpus N`",
    },
];

/// Returns a refusal if the library in use has an argument for the edit.
pub(super) fn refusal(program: &Program<'_>, kind: EditKind) -> Option<Refusal> {
    let (framework, at) = used(program)?;
    let (_, argument) = framework.arguments.iter().find(|(of, _)| *of == kind)?;
    let library = framework.name;
    Some(Refusal::NotUnderstood(format!("{library} supports this itself: set {argument} at {at}")))
}

/// Returns a refusal for a program whose library trains on several GPUs itself.
pub(super) fn of_several_gpus(program: &Program<'_>) -> Option<Refusal> {
    let (framework, at) = used(program)?;
    let (library, how) = (framework.name, framework.several_gpus);
    let why = format!("{library} ({at}) trains on several GPUs itself: {how}");
    Some(Refusal::NotUnderstood(why))
}

/// Returns the message for a program whose training loop is in a library.
pub(super) fn loop_of(program: &Program<'_>) -> Option<String> {
    let (framework, at) = used(program)?;
    let library = framework.name;
    Some(format!(
        "{library} ({at}) runs the training loop, so there is no loop in the program to \
        edit"
    ))
}

/// Returns the library that trains, and where it is called.
fn used(program: &Program<'_>) -> Option<(&'static Framework, String)> {
    program.calls().find_map(|(module, call)| {
        let qualified = program.called(module, call);
        let package = qualified.split('.').next().unwrap_or_default();
        let known = FRAMEWORKS.iter().find(|one| {
            one.packages.contains(&package) && one.calls.contains(&last_name(&qualified))
        });
        known.map(|framework| (framework, program.at(module, call.span.start)))
    })
}
