//! GPUs and other devices that the program requires but this machine does not have.

use super::{Advice, Failed, between, quoted};

/// Messages of torch if there is no GPU (torch/cuda/__init__.py, torch/serialization.py, c10/cuda).
const NO_GPU_MESSAGES: &[&str] = &[
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver on your system",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "no CUDA-capable device is detected",
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
    "Cannot initialize CUDA without ATen_cuda library",
    "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
    "nccl2 requires at least one CUDA device",
    "The NVIDIA driver on your system is too old",
];

/// The program requires a GPU, but torch finds none.
pub(super) fn gpu_absent(failed: &Failed) -> Option<Advice> {
    let is_asserted = failed.is(&["AssertionError"])
        && failed.run.source.starts_with("assert ")
        && failed.run.source.contains("cuda.is_available()");
    if !failed.message_contains(NO_GPU_MESSAGES) && !is_asserted {
        return None;
    }
    let why = if failed.run.device == "cpu" {
        let option = match failed.reader {
            super::Reader::Terminal => "`--device cpu`, or `device = \"cpu\"` in ridgeline.toml,",
            super::Reader::Editor => "`device = \"cpu\"`",
        };
        return failed.because(
            "gpu-hidden",
            format!(
                "The program needs a GPU, but {option} hides GPUs from it. If this machine \
                has one, remove that; otherwise use the program's own option for the CPU."
            ),
        );
    } else if failed.run.torch_has_gpu == Some(false) {
        format!("this PyTorch ({}) is a CPU-only build", failed.run.torch)
    } else if failed.message_contains(&["driver on your system is too old"]) {
        "the NVIDIA driver is too old for this PyTorch".to_owned()
    } else {
        "PyTorch finds no GPU on this machine".to_owned()
    };
    let on_load = if failed.message_contains(&["Attempting to deserialize"]) {
        "Load the file with `map_location=\"cpu\"`, or use"
    } else {
        "Use"
    };
    let how = match &failed.run.cpu_option {
        Some(option) => format!(
            "{on_load} the program's own option for the CPU, `{option}`. {}.",
            failed.run.with_arguments(failed.reader, option)
        ),
        None => format!(
            "{on_load} the program's own option for the CPU, if it has one, or let its code choose \
            the device by `torch.cuda.is_available()`. Ridgeline's `--device cpu` only hides GPUs."
        ),
    };
    failed.because("gpu-absent", format!("The program needs a GPU, and {why}. {how}"))
}

/// Mixed precision of Transformers and Accelerate that needs a GPU (transformers/training_args.py,
/// accelerate/accelerator.py).
pub(super) fn precision_needs_gpu(failed: &Failed) -> Option<Advice> {
    let text = if failed.message_contains(&["Your setup doesn't support bf16/gpu"]) {
        "The program trains in bfloat16 on a GPU, and PyTorch finds none that supports it. To train on the CPU, set `use_cpu=True` \
        in its training arguments; a program that reads them from its command line takes `--use_cpu True`."
    } else if failed.message_contains(&[
        "fp16 mixed precision requires a",
        "FP16 Mixed precision training with AMP",
    ]) {
        "The program trains in float16, which needs a GPU, and PyTorch finds none. On the CPU, use bfloat16 (`bf16`) or no \
        mixed precision."
    } else {
        return None;
    };
    failed.because("precision-needs-gpu", text)
}

/// The GPU index does not exist.
pub(super) fn gpu_index(failed: &Failed) -> Option<Advice> {
    if !failed.message_contains(&[
        "CUDA error: invalid device ordinal",
        "Attempting to deserialize object on CUDA device",
    ]) {
        return None;
    }
    let hidden = match failed.run.device.strip_prefix("cuda:") {
        Some(index) => format!(
            " With `device = \"cuda:{index}\"` the program sees only that GPU, as `cuda:0`."
        ),
        None => String::new(),
    };
    failed.because(
        "gpu-index",
        format!(
            "The program uses a GPU index that this machine does not have.{hidden} Use \
            `cuda:0`."
        ),
    )
}

/// The program uses a device other than an NVIDIA or AMD GPU, without support in this build.
pub(super) fn backend_absent(failed: &Failed) -> Option<Advice> {
    let message = failed.failure.message.as_str();
    let name = between(message, "PyTorch is not linked with support for ", " devices")
        .or_else(|| unknown_backend(message))
        .or_else(|| message.contains("The MPS backend is supported on").then_some("mps"))
        .or_else(|| message.contains("Torch not compiled with MPS enabled").then_some("mps"))
        .or_else(|| message.contains("Torch not compiled with XPU enabled").then_some("xpu"))?;
    let how = failed.run.cpu_option.as_ref().map_or_else(String::new, |option| {
        format!(" {}.", failed.run.with_arguments(failed.reader, option))
    });
    let name = name.to_lowercase();
    let owner = match name.as_str() {
        "mps" => " (Apple GPUs)",
        "xpu" => " (Intel GPUs)",
        _ => "",
    };
    failed.because(
        "backend-absent",
        format!(
            "The program uses the device {}{owner}, but this PyTorch ({}) is built without it. Use \
            the program's own option for another device, if it has one.{how}",
            quoted(&name),
            failed.run.torch
        ),
    )
}

/// The device of the first tensor that could not be created. The message of torch lists the
/// backends that it was built with.
fn unknown_backend(message: &str) -> Option<&str> {
    let name = between(message, "from the '", "' backend")
        .filter(|_| message.contains("Could not run 'aten::empty"))?;
    let known = between(message, "only available for these backends: [", " Autograd")?;
    let is_known = known.split([',', ' ', ']']).any(|backend| backend == name);
    (!is_known && name != "CUDA" && name != "CPU").then_some(name)
}

/// This build of torch has no kernels for the GPU.
pub(super) fn unsupported_gpu(failed: &Failed) -> Option<Advice> {
    if !failed.message_contains(&["no kernel image is available for execution on the device"]) {
        return None;
    }
    failed.because(
        "gpu-unsupported",
        format!(
            "This PyTorch ({}) has no kernels for this GPU: the GPU is too old or too new for it. \
            Install a build that supports it (see pytorch.org for builds by CUDA version).",
            failed.run.torch
        ),
    )
}
