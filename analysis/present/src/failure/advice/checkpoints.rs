//! Weight files that cannot be loaded.

use super::{Advice, Failed, between};

/// Since PyTorch 2.6, `torch.load` loads only weights by default.
pub(super) fn weights_only(failed: &Failed) -> Option<Advice> {
    if !failed.message_contains(&["Weights only load failed"]) {
        return None;
    }
    let how = failed.run.with_variable(failed.reader, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1");
    failed.because(
        "weights-only",
        format!(
            "Since PyTorch 2.6, `torch.load` loads only tensors by default, and this file contains \
            other objects. If you trust the file, pass `weights_only=False` in the program; or, \
            without changing the program, set {how}."
        ),
    )
}

/// The file is a Git LFS pointer instead of the weights.
pub(super) fn git_lfs(failed: &Failed) -> Option<Advice> {
    let is_pointer =
        failed.is(&["UnpicklingError"]) && failed.message_contains(&["invalid load key, 'v'"]);
    let is_safetensors = failed.message_contains(&["header too large", "HeaderTooLarge"])
        && failed.comes_from(&["SafetensorError"]);
    if !(is_pointer || is_safetensors) {
        return None;
    }
    failed.because(
        "git-lfs",
        "The file is probably a Git LFS pointer instead of the weights (a small text file starting \
        with `version`). Download the weights: `git lfs pull`.",
    )
}

/// The file is incomplete, for example after an interrupted download.
pub(super) fn damaged(failed: &Failed) -> Option<Advice> {
    let texts = &[
        "PytorchStreamReader failed reading zip archive",
        "PytorchStreamReader failed reading file",
        "MetadataIncompleteBuffer",
        "Ran out of input",
    ];
    let is_load =
        failed.raised_in().starts_with("torch/") || failed.comes_from(&["SafetensorError"]);
    if !failed.message_contains(texts) || !is_load {
        return None;
    }
    failed.because(
        "damaged-checkpoint",
        "The file is incomplete, for example after an interrupted download or `torch.save`. Delete \
        it, and create or download it again.",
    )
}

/// The weights belong to a different model architecture.
pub(super) fn other_model(failed: &Failed) -> Option<Advice> {
    let name = between(&failed.failure.message, "Error(s) in loading state_dict for ", ":")?;
    let is_parallel = failed.message_contains(&["\"module."]);
    let prefix = if is_parallel {
        " The keys start with `module.`: they were saved from a `DataParallel` or \
        `DistributedDataParallel` wrapper. `model.module.state_dict()` saves them without the \
        prefix."
    } else {
        ""
    };
    failed.because(
        "other-checkpoint",
        format!(
            "The checkpoint does not match this {name}: layers or shapes differ.{prefix} Use the \
            configuration it was trained with, or start without the checkpoint."
        ),
    )
}
