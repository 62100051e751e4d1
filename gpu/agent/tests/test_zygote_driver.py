"""Detection of a usable GPU through its driver, with a time limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
import torch

from ridgeline_agent.process import zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


def _patch_is_available(monkeypatch: pytest.MonkeyPatch, is_available: Callable[[], bool]) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", is_available)


def test_gpu_without_nvidia_device_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # For example on Jetson, in WSL and in containers.
    _patch_is_available(monkeypatch, lambda: True)
    assert zygote.cuda_is_usable()
    _patch_is_available(monkeypatch, lambda: False)
    assert not zygote.cuda_is_usable()


def test_driver_that_hangs_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs() -> bool:
        time.sleep(60)
        return True

    def fails() -> bool:
        raise OSError("no such device")

    _patch_is_available(monkeypatch, hangs)
    assert not zygote.cuda_is_usable(limit=0.2)
    _patch_is_available(monkeypatch, fails)
    assert not zygote.cuda_is_usable()


def test_cpu_build_of_torch_does_not_query_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise AssertionError("the driver must not be queried")

    monkeypatch.setattr(zygote.os, "fork", fail)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert not zygote.cuda_is_usable()


def test_open_driver_device_makes_fork_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/nvidia-uvm", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl"):
        monkeypatch.setattr(zygote.process_tree, "threads_of_this_process", lambda: 1)
        monkeypatch.setattr(zygote, "_open_devices", lambda device=device: ["/dev/null", device])
        assert zygote.why_unsafe() == f"the GPU driver is in use ({device})"
