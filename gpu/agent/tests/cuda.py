"""Detects whether tests can use a GPU, either a real or a simulated one."""

from __future__ import annotations

import ctypes
import glob
import os

import pytest
import torch


def _is_simulated() -> bool:
    # The simulation's library exports this symbol.
    return hasattr(ctypes.CDLL(None), "simgpu_missing")


def _skip_reason() -> str:
    if torch.version.cuda is None:
        return "this build of PyTorch has no CUDA"
    # Do not query CUDA: it must not be initialized in a process that forks the tests' runs.
    if not _is_simulated() and not os.path.exists("/dev/nvidiactl"):
        return "needs a GPU; start the tests with tests/gpu/simulated/run to simulate one"
    return ""


def device_count() -> int:
    """The number of GPUs that a run can use, determined without initializing CUDA."""
    if _is_simulated():
        return int(os.environ.get("SIMGPU_COUNT", "1"))
    return len(glob.glob("/dev/nvidia[0-9]*"))


needs_cuda = pytest.mark.skipif(bool(_skip_reason()), reason=_skip_reason())
