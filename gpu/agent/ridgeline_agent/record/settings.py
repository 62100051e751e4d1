"""PyTorch's settings while the iterations ran, and facts about the machine."""

from __future__ import annotations

import contextlib
import math
import os
import re

import torch


class IterationScopedSettings:
    """Settings that a program enables for a part of each iteration."""

    def __init__(self) -> None:
        self._autocasts: dict[str, None] = {}
        self.has_anomaly_detection = False

    def observe(self, device: torch.device) -> None:
        """Records the current settings."""
        if torch.is_autocast_enabled(device.type):
            name = str(torch.get_autocast_dtype(device.type))
            self._autocasts[name.partition("torch.")[2]] = None
        self.has_anomaly_detection |= torch.is_anomaly_enabled()

    def autocasts_json(self) -> list[str]:
        """Returns `settings.autocast` for the manifest."""
        return list(self._autocasts)


def settings_json(device: torch.device, within: IterationScopedSettings) -> dict[str, object]:
    """Returns `settings` for the manifest."""
    return {
        "autocast": within.autocasts_json(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": within.has_anomaly_detection or torch.is_anomaly_enabled(),
        "bf16_native": has_native_bfloat16(device),
    }


def machine_json() -> dict[str, object]:
    """Returns `machine` for the manifest."""
    return {"cores": usable_cores()}


def usable_cores() -> int | None:
    """Returns the number of CPU cores that this process may use."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 0
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        if quota != "max" and int(period) > 0:
            cores = min(cores, math.ceil(int(quota) / int(period)))
    return cores or None


def has_native_bfloat16(device: torch.device) -> bool | None:
    """Whether the device has instructions for bfloat16; None if unknown."""
    if device.type == "cuda":
        # So do AMD's accelerators of these years.
        return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", file.read(), re.M)
    except OSError:
        return None
    if flags is None:
        return None
    known = set(flags.group(1).split())
    # oneDNN is what uses them.
    return (
        bool(known & {"avx512_bf16", "amx_bf16", "bf16"}) and torch.backends.mkldnn.is_available()
    )
