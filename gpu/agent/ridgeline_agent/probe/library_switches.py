"""Settings of GPU libraries that affect how an operator runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

Switch = Callable[[], AbstractContextManager[None]]


@contextmanager
def _tf32() -> Iterator[None]:
    """Rounds the inputs of matrix multiplications to TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Inverts `cudnn.benchmark`: cuDNN benchmarks its algorithms instead of using its heuristics,
    or the other way round.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


# By the variant's name in a request.
SWITCHES: dict[str, Switch] = {"tf32": _tf32, "cudnn_benchmark": _cudnn_benchmark}
