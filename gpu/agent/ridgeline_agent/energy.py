"""What a GPU has drawn, by the counter that NVML keeps for it.

The library comes with NVIDIA's driver. It is asked through ctypes, because the program's Python
need not have a binding for it. Whatever is missing (the library, the counter before Volta, a
device that NVML does not know) means that nothing was measured.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

_SUCCESS = 0
_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")


class EnergyCounter:
    """Millijoules that one GPU has drawn since its driver was loaded."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, device: torch.device) -> EnergyCounter | None:
        """The counter of a device; nothing where there is none."""
        if device.type != "cuda" or torch.version.hip:
            return None
        uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
        library = _loaded()
        if uuid is None or library is None:
            return None
        return cls.by_name(library, f"GPU-{uuid}")

    @classmethod
    def by_name(cls, library: Any, name: str) -> EnergyCounter | None:
        """The counter of the device that NVML calls `name`, if it has one that counts."""
        try:
            if library.nvmlInit_v2() != _SUCCESS:
                return None
            handle = ctypes.c_void_p()
            found = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
        except AttributeError:
            return None
        counter = cls(library, handle)
        if found != _SUCCESS or counter.millijoules() is None:
            return None
        return counter

    def millijoules(self) -> int | None:
        """What the counter says."""
        value = ctypes.c_ulonglong()
        try:
            said = self._library.nvmlDeviceGetTotalEnergyConsumption(
                self._handle, ctypes.byref(value)
            )
        except AttributeError:
            return None
        return value.value if said == _SUCCESS else None


def _loaded() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
