"""NVML, the library that knows a GPU's state.

It comes with NVIDIA's driver, and is asked through ctypes, because the program's Python need not
have a binding for it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

SUCCESS = 0
_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")


def loaded() -> Any:
    """The library, or None where there is none."""
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def name_of(device: torch.device) -> str | None:
    """What NVML calls a device of torch's; None where it is not NVIDIA's."""
    if device.type != "cuda" or torch.version.hip:
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def handle(library: Any, name: str) -> Any:
    """NVML's handle of the device of this name, or None where it knows none."""
    found = ctypes.c_void_p()
    try:
        if library.nvmlInit_v2() != SUCCESS:
            return None
        said = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(found))
    except AttributeError:
        return None
    return found if said == SUCCESS else None
