"""What a GPU has drawn, by the counter that NVML keeps for it.

Whatever is missing (the library, the counter before Volta, a device that NVML does not know) means
that nothing was measured. Of a MIG instance nothing is: the counter is the whole GPU's, and others
may use the rest of it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ..system import nvml


class EnergyCounter:
    """Millijoules that one GPU has drawn since its driver was loaded."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, device: torch.device) -> EnergyCounter | None:
        """The counter of a device; nothing where there is none."""
        return cls.of_gpu(nvml.find(device))

    @classmethod
    def of_gpu(cls, gpu: nvml.Gpu | nvml.Unavailable) -> EnergyCounter | None:
        """The counter of a GPU that torch has for itself, if it has one that counts."""
        if isinstance(gpu, nvml.Unavailable) or gpu.is_instance:
            return None
        counter = cls(gpu.library, gpu.whole)
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
