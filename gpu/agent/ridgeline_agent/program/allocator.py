"""What the allocator of a GPU's memory tells. PyTorch's caching allocator tells everything.

`backend:cudaMallocAsync` counts bytes and knows no blocks. A `CUDAPluggableAllocator` refuses every
question, and with PYTORCH_NO_CUDA_MEMORY_CACHING the counters stay at zero.
"""

from __future__ import annotations

import contextlib

import torch


def allocated_bytes(device: torch.device | int) -> int | None:
    """What is given out now; None where nobody counts."""
    with contextlib.suppress(RuntimeError):
        return torch.cuda.memory_allocated(device) or None
    return None


def most_allocated_bytes(device: torch.device) -> int | None:
    """The most since `forget_most`; None where nobody counts."""
    with contextlib.suppress(RuntimeError):
        return torch.cuda.max_memory_allocated(device) or None
    return None


def forget_most(device: torch.device) -> None:
    """The most is looked for from here on."""
    with contextlib.suppress(RuntimeError):
        torch.cuda.reset_peak_memory_stats(device)


def block_sizes() -> dict[int, int]:
    """The size of each block that was given out, by address; nothing where it is not told."""
    blocks = {}
    with contextlib.suppress(RuntimeError):
        for segment in torch.cuda.memory_snapshot():
            address = segment["address"]
            for block in segment["blocks"]:
                blocks[address] = block["size"]
                address += block["size"]
    return blocks


def why_unknown() -> str:
    """Why memory is not known, where nobody counts."""
    backend = getattr(torch.cuda.memory, "get_allocator_backend", lambda: "")()
    if backend == "pluggable":
        return "the program uses a pluggable allocator that does not report allocations"
    return "PyTorch's caching allocator is disabled, so allocations are not reported"
