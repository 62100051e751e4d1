//! Files of weights that cannot be loaded.

use super::{Advice, Seen, between};

/// `torch.load` has read weights only since PyTorch 2.6.
pub(super) fn weights_only(seen: &Seen) -> Option<Advice> {
    if !seen.says(&["Weights only load failed"]) {
        return None;
    }
    let how = seen.run.with_variable(seen.reader, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1");
    seen.because(
        "weights-only",
        format!(
            "Since PyTorch 2.6, `torch.load` loads only tensors by default, and this file contains \
            other objects. If you trust the file, pass `weights_only=False` in the program; or, \
            without changing the program, set {how}."
        ),
    )
}

/// The file is a pointer, not the weights.
pub(super) fn git_lfs(seen: &Seen) -> Option<Advice> {
    let is_pointer = seen.is(&["UnpicklingError"]) && seen.says(&["invalid load key, 'v'"]);
    let is_safetensors =
        seen.says(&["header too large", "HeaderTooLarge"]) && seen.comes_from(&["SafetensorError"]);
    if !(is_pointer || is_safetensors) {
        return None;
    }
    seen.because(
        "git-lfs",
        "The file is probably a Git LFS pointer instead of the weights (a small text file starting \
        with `version`). Download the weights: `git lfs pull`.",
    )
}

/// A download that was cut short.
pub(super) fn damaged(seen: &Seen) -> Option<Advice> {
    let texts = &[
        "PytorchStreamReader failed reading zip archive",
        "PytorchStreamReader failed reading file",
        "MetadataIncompleteBuffer",
        "Ran out of input",
    ];
    let is_load = seen.raised_in().starts_with("torch/") || seen.comes_from(&["SafetensorError"]);
    if !seen.says(texts) || !is_load {
        return None;
    }
    seen.because(
        "damaged-checkpoint",
        "The file is incomplete, for example after an interrupted download or `torch.save`. Delete \
        it, and create or download it again.",
    )
}

/// Weights of a model that is built otherwise.
pub(super) fn other_model(seen: &Seen) -> Option<Advice> {
    let name = between(&seen.failure.message, "Error(s) in loading state_dict for ", ":")?;
    let is_parallel = seen.says(&["\"module."]);
    let prefix = if is_parallel {
        " The keys start with `module.`: they were saved from a `DataParallel` or \
        `DistributedDataParallel` wrapper. `model.module.state_dict()` saves them without the \
        prefix."
    } else {
        ""
    };
    seen.because(
        "other-checkpoint",
        format!(
            "The checkpoint does not match this {name}: layers or shapes differ.{prefix} Use the \
            configuration it was trained with, or start without the checkpoint."
        ),
    )
}
