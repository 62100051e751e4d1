//! GPUs and other devices that the program asks for and this machine does not have.

use super::{Advice, Seen, between, quoted};

/// What torch says where there is no GPU (torch/cuda/__init__.py, torch/serialization.py, c10/cuda).
const NO_GPU: &[&str] = &[
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver on your system",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
    "no CUDA-capable device is detected",
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
    "Cannot initialize CUDA without ATen_cuda library",
    "ProcessGroupNCCL is only supported with GPUs, no GPUs found",
    "The NVIDIA driver on your system is too old",
];

/// The program asks for a GPU, and torch finds none.
pub(super) fn gpu_absent(seen: &Seen) -> Option<Advice> {
    let is_asserted = seen.is(&["AssertionError"])
        && seen.run.source.starts_with("assert ")
        && seen.run.source.contains("cuda.is_available()");
    if !seen.says(NO_GPU) && !is_asserted {
        return None;
    }
    let why = if seen.run.device == "cpu" {
        let option = match seen.reader {
            super::Reader::Terminal => "`--device cpu`, or `device = \"cpu\"` in ridgeline.toml,",
            super::Reader::Editor => "`device = \"cpu\"`",
        };
        return seen.because(
            "gpu-hidden",
            format!(
                "The program needs a GPU, but {option} hides this machine's GPUs from it. Remove \
                that, or use the program's own option for the CPU."
            ),
        );
    } else if seen.run.torch_has_gpu == Some(false) {
        format!("this PyTorch ({}) is a CPU-only build", seen.run.torch)
    } else if seen.says(&["driver on your system is too old"]) {
        "the NVIDIA driver is too old for this PyTorch".to_owned()
    } else {
        "PyTorch finds no GPU on this machine".to_owned()
    };
    let how = seen.run.with_arguments(seen.reader, "--device cpu");
    let on_load = if seen.says(&["Attempting to deserialize"]) {
        "Load the file with `map_location=\"cpu\"`. Otherwise use"
    } else {
        "Use"
    };
    seen.because(
        "gpu-absent",
        format!(
            "The program needs a GPU, and {why}. {on_load} the program's own option for the CPU, \
            if it has one. {how}. Ridgeline's `--device cpu` only hides GPUs: it helps programs \
            that check `torch.cuda.is_available()` first."
        ),
    )
}

/// A GPU by a number that there is none of.
pub(super) fn gpu_index(seen: &Seen) -> Option<Advice> {
    if !seen.says(&[
        "CUDA error: invalid device ordinal",
        "Attempting to deserialize object on CUDA device",
    ]) {
        return None;
    }
    let hidden = match seen.run.device.strip_prefix("cuda:") {
        Some(index) => format!(
            " With `device = \"cuda:{index}\"` the program sees only that GPU, as `cuda:0`."
        ),
        None => String::new(),
    };
    seen.because(
        "gpu-index",
        format!(
            "The program uses a GPU index that this machine does not have.{hidden} Use \
            `cuda:0`."
        ),
    )
}

/// Another device than a GPU of NVIDIA's or AMD's.
pub(super) fn backend_absent(seen: &Seen) -> Option<Advice> {
    let said = seen.failure.message.as_str();
    let name = between(said, "PyTorch is not linked with support for ", " devices")
        .or_else(|| unknown_backend(said))
        .or_else(|| said.contains("The MPS backend is supported on").then_some("mps"))
        .or_else(|| said.contains("Torch not compiled with MPS enabled").then_some("mps"))
        .or_else(|| said.contains("Torch not compiled with XPU enabled").then_some("xpu"))?;
    let how = seen.run.with_arguments(seen.reader, "--device cpu");
    let name = name.to_lowercase();
    let owner = match name.as_str() {
        "mps" => " (Apple GPUs)",
        "xpu" => " (Intel GPUs)",
        _ => "",
    };
    seen.because(
        "backend-absent",
        format!(
            "The program uses the device {}{owner}, but this PyTorch ({}) is built without it. Use \
            the program's own option for another device. {how}.",
            quoted(&name),
            seen.run.torch
        ),
    )
}

/// The device of the first tensor that could not be made: torch names the backends that it was built with.
fn unknown_backend(said: &str) -> Option<&str> {
    let name = between(said, "from the '", "' backend")
        .filter(|_| said.contains("Could not run 'aten::empty"))?;
    let known = between(said, "only available for these backends: [", " Autograd")?;
    let is_known = known.split([',', ' ', ']']).any(|one| one == name);
    (!is_known && name != "CUDA" && name != "CPU").then_some(name)
}

/// A GPU that this build of torch has no kernels for.
pub(super) fn unsupported_gpu(seen: &Seen) -> Option<Advice> {
    if !seen.says(&["no kernel image is available for execution on the device"]) {
        return None;
    }
    seen.because(
        "gpu-unsupported",
        format!(
            "This PyTorch ({}) has no kernels for this GPU: the GPU is too old or too new for it. \
            Install a build that supports it (see pytorch.org for builds by CUDA version).",
            seen.run.torch
        ),
    )
}
