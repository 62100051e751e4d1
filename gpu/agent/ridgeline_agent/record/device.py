"""Facts about the device that runs the program."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from typing import Any

import torch

from ..program.allocator import allocated_bytes
from ..program.memory import other_tensors


def used_device(wanted: str) -> torch.device:
    """Returns the device whose memory and time are measured: the GPU that the program uses, or the
    CPU.
    """
    if wanted != "cpu" and torch.cuda.is_initialized():
        counted = {index: allocated_bytes(index) or 0 for index in range(torch.cuda.device_count())}
        held = counted if any(counted.values()) else _held_by_tensors()
        if any(held.values()):
            return torch.device("cuda", max(held, key=lambda index: held[index]))
    return torch.device("cpu")


def _held_by_tensors() -> dict[int, int]:
    """Returns the bytes of tensors by GPU, for allocators that do not report allocations."""
    held: dict[int, int] = {}
    for tensor in other_tensors():
        if tensor.device.type == "cuda" and tensor.device.index is not None:
            size = tensor.numel() * tensor.element_size()
            held[tensor.device.index] = held.get(tensor.device.index, 0) + size
    return held


def others_in_use(used: torch.device) -> list[str]:
    """Returns the program's other GPUs, such as `cuda:0`, with more than 1% of the memory on
    `used`.
    """
    if used.type != "cuda":
        return []
    threshold = (allocated_bytes(used) or 0) // 100
    others = (index for index in range(torch.cuda.device_count()) if index != used.index)
    return [f"cuda:{index}" for index in others if (allocated_bytes(index) or 0) > threshold]


def synchronize() -> None:
    """Waits for all GPUs on which the process has memory: a model may use several."""
    # Synchronizing with another GPU would create a context there, which takes memory and time.
    wrap_command = [index for index in range(torch.cuda.device_count()) if _holds_memory(index)]
    # Without PyTorch's caching allocator, no GPU is known to have memory.
    for index in wrap_command or [torch.cuda.current_device()]:
        torch.cuda.synchronize(index)


def _holds_memory(index: int) -> bool:
    try:
        return bool(torch.cuda.memory_reserved(index) > 0)
    except RuntimeError:
        # A pluggable allocator does not report it.
        return bool(index == torch.cuda.current_device())


def device_json(device: torch.device) -> dict[str, object]:
    """Returns `device` for the manifest."""
    if device.type == "cuda":
        properties: Any = torch.cuda.get_device_properties(device)
        return {
            "kind": "rocm" if torch.version.hip else "cuda",
            "name": properties.name,
            "index": device.index,
            "capacity_bytes": properties.total_memory,
            "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count,
            "threads": torch.get_num_threads(),
            "simulated": is_simulated(),
        }
    return {
        "kind": "cpu",
        "name": cpu_name(),
        "index": None,
        "capacity_bytes": main_memory_bytes(),
        "capability": None,
        "multiprocessors": None,
        "threads": torch.get_num_threads(),
        "simulated": False,
    }


def is_simulated() -> bool:
    """Whether this process runs on the simulated CUDA device (tests/gpu/simulated), whose libraries
    export a symbol that no real one has. Environment variables are no alternative: a launcher drops
    them.
    """
    return os.name == "posix" and hasattr(ctypes.CDLL(None), "simgpu_missing")


def cpu_name() -> str | None:
    """Returns the CPU's model name, if the system reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", file.read(), re.M)
    except OSError:
        found = None
    if found:
        return found.group(1).strip()
    return platform.processor() or platform.machine() or None


def main_memory_bytes() -> int | None:
    """Returns the machine's memory in bytes, or a smaller cgroup limit."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    limits = [total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            # No such cgroup, or "max".
            continue
    return min(limits)
