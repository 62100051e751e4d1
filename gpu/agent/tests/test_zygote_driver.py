"""Whether there is a GPU is for its driver to say, within a limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest
import torch

from ridgeline_agent.process import zygote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


def _answer(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bool]) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", answer)


def test_a_driver_without_the_device_files_of_a_server_has_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on Jetson, WSL and in containers.
    _answer(monkeypatch, lambda: True)
    assert zygote.cuda_is_usable()
    _answer(monkeypatch, lambda: False)
    assert not zygote.cuda_is_usable()


def test_a_driver_that_hangs_or_fails_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs() -> bool:
        time.sleep(60)
        return True

    def fails() -> bool:
        raise OSError("no such device")

    _answer(monkeypatch, hangs)
    assert not zygote.cuda_is_usable(limit=0.2)
    _answer(monkeypatch, fails)
    assert not zygote.cuda_is_usable()


def test_a_torch_for_the_cpu_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        raise AssertionError("nobody asks")

    monkeypatch.setattr(zygote.os, "fork", asked)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert not zygote.cuda_is_usable()


def test_an_open_device_of_a_driver_makes_a_fork_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/nvidia-uvm", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl"):
        monkeypatch.setattr(zygote.process_tree, "threads_of_this_process", lambda: 1)
        monkeypatch.setattr(zygote, "_open_devices", lambda device=device: ["/dev/null", device])
        assert zygote.why_unsafe() == f"the GPU driver is in use ({device})"
