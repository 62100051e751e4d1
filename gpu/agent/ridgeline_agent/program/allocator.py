"""Statistics of a GPU's memory allocator. PyTorch's caching allocator reports everything.

`backend:cudaMallocAsync` counts bytes but has no blocks. A `CUDAPluggableAllocator` rejects all
queries, and with PYTORCH_NO_CUDA_MEMORY_CACHING the counters stay at zero.
"""

from __future__ import annotations

import contextlib

import torch


def allocated_bytes(device: torch.device | int) -> int | None:
    """Returns the bytes allocated now, or None if the allocator does not report them."""
    with contextlib.suppress(RuntimeError):
        return torch.cuda.memory_allocated(device) or None
    return None


def max_allocated_bytes(device: torch.device) -> int | None:
    """Returns the peak since `reset_peak`, or None if the allocator does not report it."""
    with contextlib.suppress(RuntimeError):
        return torch.cuda.max_memory_allocated(device) or None
    return None


def reset_peak(device: torch.device) -> None:
    """Resets the peak."""
    with contextlib.suppress(RuntimeError):
        torch.cuda.reset_peak_memory_stats(device)


def block_sizes() -> dict[int, int]:
    """Returns the size of each allocated block by address. Empty if the allocator has no blocks."""
    blocks = {}
    with contextlib.suppress(RuntimeError):
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                blocks[address] = block["size"]
                address += block["size"]
    return blocks


def why_unknown() -> str:
    """Returns the reason why allocations are not reported."""
    backend = getattr(torch.cuda.memory, "get_allocator_backend", lambda: "")()
    if backend == "pluggable":
        return "the program uses a pluggable allocator that does not report allocations"
    return "PyTorch's caching allocator is disabled, so allocations are not reported"
