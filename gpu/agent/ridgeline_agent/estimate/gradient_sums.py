"""Gradient sums that autograd's engine would compute in place.

If a tensor was used twice, the engine adds the second gradient to the first one in place, unless
the first one is referenced elsewhere (`InputBuffer::accumulate` in
torch/csrc/autograd/input_buffer.cpp). Under a dispatch mode it never does, and would appear to use
more memory than it does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_use_count_of_storage: Any = getattr(torch._C, "_storage_Use_Count", None)


class InPlaceSums:
    """Detects whether only the engine references a gradient, by its reference counts."""

    def __init__(self) -> None:
        # Reference counts of a gradient that only the engine holds during the addition.
        self._exclusive_counts: tuple[int, int] | None = None

    def measure(self) -> None:
        """Measures the counts in a sum whose gradients are certainly not referenced elsewhere."""
        seen: list[tuple[int, int]] = []

        class CountReferences(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                if func is torch.ops.aten.add.Tensor:
                    seen.append(_counts(args[0]))
                return func(*args, **(kwargs or {}))

        if _use_count_of_storage is None:
            return
        twice = torch.ones(2, requires_grad=True) * 2
        loss = torch.cat([twice * 3, twice * 4]).sum()
        with CountReferences():
            loss.backward()
        if len(seen) == 1:
            self._exclusive_counts = seen[0]

    def of(self, args: tuple[Any, ...]) -> Any:
        """Returns the gradient that receives the sum, or None if the sum needs new memory."""
        if self._exclusive_counts is None or len(args) != 2:
            return None
        old, new = args
        if not isinstance(new, torch.Tensor) or old.shape != new.shape or old.dtype != new.dtype:
            return None
        # Only the first gradient can receive the sum, whatever the other is.
        return old if _counts(old) == self._exclusive_counts and _is_dense(old) else None


def _counts(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return int(tensor._use_count()), int(_use_count_of_storage(storage._cdata))


def _is_dense(tensor: Any) -> bool:
    """Whether its elements fill its storage without overlap."""
    return bool(tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())
