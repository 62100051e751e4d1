"""What a GPU has drawn, by the counter that NVML keeps for it.

Whatever is missing (the library, the counter before Volta, a device that NVML does not know) means
that nothing was measured.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from . import nvml


class EnergyCounter:
    """Millijoules that one GPU has drawn since its driver was loaded."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, device: torch.device) -> EnergyCounter | None:
        """The counter of a device; nothing where there is none."""
        name = nvml.name_of(device)
        library = None if name is None else nvml.loaded()
        return None if name is None or library is None else cls.by_name(library, name)

    @classmethod
    def by_name(cls, library: Any, name: str) -> EnergyCounter | None:
        """The counter of the device that NVML calls `name`, if it has one that counts."""
        handle = nvml.handle(library, name)
        if handle is None:
            return None
        counter = cls(library, handle)
        if counter.millijoules() is None:
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
        return value.value if said == nvml.SUCCESS else None
