"""Whether tests may use a GPU: a real one, or the simulated device that they were started on."""

from __future__ import annotations

import ctypes
import glob
import os

import pytest
import torch


def _is_simulated() -> bool:
    """By a symbol that the simulation's library exports."""
    return hasattr(ctypes.CDLL(None), "simgpu_missing")


def _why_not() -> str:
    if torch.version.cuda is None:
        return "this build of PyTorch has no CUDA"
    # CUDA itself is not asked: it must not be initialized in a process that forks the tests' runs.
    if not _is_simulated() and not os.path.exists("/dev/nvidiactl"):
        return "no GPU here; start the tests with tests/gpu/simulated/run"
    return ""


def device_count() -> int:
    """How many GPUs a run sees, likewise without a question to CUDA."""
    if _is_simulated():
        return int(os.environ.get("SIMGPU_COUNT", "1"))
    return len(glob.glob("/dev/nvidia[0-9]*"))


needs_cuda = pytest.mark.skipif(bool(_why_not()), reason=_why_not())
