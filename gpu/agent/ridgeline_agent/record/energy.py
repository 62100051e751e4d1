"""GPU energy, from NVML's counter.

If anything is missing (the library, the counter before Volta, a device that NVML does not know),
energy is not measured. It is never measured for a MIG instance: the counter belongs to the whole
GPU, and others may use the rest of it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from ..system import nvml


class EnergyCounter:
    """The energy that a GPU has used since its driver was loaded, in millijoules."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def of(cls, device: torch.device) -> EnergyCounter | None:
        """Returns the counter of a device, or None."""
        return cls.of_gpu(nvml.find(device))

    @classmethod
    def of_gpu(cls, gpu: nvml.Gpu | nvml.Unavailable) -> EnergyCounter | None:
        """Returns the counter of a GPU that torch uses exclusively, if it has a working one."""
        if isinstance(gpu, nvml.Unavailable) or gpu.is_instance:
            return None
        counter = cls(gpu.library, gpu.whole)
        if counter.millijoules() is None:
            return None
        return counter

    def millijoules(self) -> int | None:
        """Reads the counter."""
        value = ctypes.c_ulonglong()
        try:
            error_code = self._library.nvmlDeviceGetTotalEnergyConsumption(
                self._handle, ctypes.byref(value)
            )
        except AttributeError:
            return None
        return value.value if error_code == nvml.SUCCESS else None
