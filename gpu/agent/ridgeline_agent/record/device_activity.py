"""Whether the profiler recorded GPU activity, and if not, why."""

from __future__ import annotations

import os
import re

import torch

_ACTIVITY = re.compile(rb'"cat"\s*:\s*"(?:kernel|gpu_memcpy|gpu_memset)"')
_CHUNK_BYTES = 1 << 20
# Longer than the pattern.
_OVERLAP_BYTES = 64
_DRIVER_PARAMETERS = "/proc/driver/nvidia/params"


def allocations(device: torch.device) -> int | None:
    """Returns the number of allocations on a GPU so far, or None if they are not counted."""
    if device.type != "cuda":
        return None
    try:
        return int(torch.cuda.memory_stats(device)["allocation.all.allocated"])
    except (RuntimeError, KeyError):
        # A pluggable allocator.
        return None


def has_activity(path: str) -> bool:
    """Whether a Chrome trace contains a kernel, copy or memset of a GPU."""
    before = b""
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            if _ACTIVITY.search(before + chunk):
                return True
            before = chunk[-_OVERLAP_BYTES:]
    return False


def why_missing() -> str:
    """Returns why the profiler recorded no GPU activity, and what to do, as far as known."""
    activities = torch.profiler.supported_activities()
    if torch.profiler.ProfilerActivity.CUDA not in activities:
        return (
            "This build of PyTorch cannot profile GPUs, because it has no CUPTI. Install a build "
            "of PyTorch with CUDA from pytorch.org."
        )
    for name in ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH"):
        if os.environ.get(name):
            return (
                f"Another profiler is attached ({name} is set, as by Nsight Systems), and only "
                "one can use CUPTI. "
                "Start the editor or the command without it."
            )
    if _is_for_administrators():
        return (
            "The NVIDIA driver restricts profiling to administrators (ERR_NVGPUCTRPERM). Set the "
            "driver option "
            "NVreg_RestrictProfilingToAdminUsers=0 and reboot, or run as root."
        )
    return (
        "CUPTI did not start. Another profiler may be using it (Nsight Systems, Nsight Compute, "
        "DCGM), the "
        "container may not be permitted to profile (ERR_NVGPUCTRPERM), or the driver may be "
        "older than PyTorch's "
        "CUDA. See the program's output for CUPTI's own message."
    )


def _is_for_administrators() -> bool:
    try:
        with open(_DRIVER_PARAMETERS, encoding="ascii", errors="replace") as file:
            restricted = re.search(r"^RmProfilingAdminOnly:\s*1", file.read(), re.M)
    except OSError:
        return False
    return restricted is not None and os.geteuid() != 0
