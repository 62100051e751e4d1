"""NVML, the library that knows a GPU's state.

It comes with NVIDIA's driver, and is asked through ctypes, because the program's Python need not
have a binding for it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

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


class Gpu(NamedTuple):
    """NVML's handles of the device that torch uses."""

    library: Any
    # What torch uses: the GPU, or one MIG instance of it. Memory and processes belong to it.
    device: Any
    # The GPU. Clocks, power and energy belong to it, and NVML refuses them for an instance.
    whole: Any

    @property
    def is_instance(self) -> bool:
        """Whether torch uses a MIG instance, so that others may use the rest of the GPU."""
        return self.device is not self.whole


class Unavailable(NamedTuple):
    """NVML has no answers about a device."""

    # A clause without a full stop.
    why: str


def find(device: torch.device) -> Gpu | Unavailable:
    """What NVML knows the device as."""
    if device.type != "cuda" or torch.version.hip:
        return Unavailable("it is not an NVIDIA GPU")
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if uuid is None:
        return Unavailable("this torch does not report the GPU's UUID")
    library = loaded()
    if library is None:
        return Unavailable(f"NVML ({_LIBRARIES[0]}) is not installed")
    return by_uuid(library, str(uuid))


def by_uuid(library: Any, uuid: str) -> Gpu | Unavailable:
    """The device with this UUID, a GPU or a MIG instance: torch gives either without the prefix."""
    try:
        if (said := library.nvmlInit_v2()) != SUCCESS:
            return Unavailable(f"NVML failed to initialize (error {said})")
        for prefix in ("GPU-", "MIG-"):
            found = ctypes.c_void_p()
            name = (prefix + uuid).encode()
            if library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(found)) != SUCCESS:
                continue
            if prefix == "GPU-":
                return Gpu(library, found, found)
            return _instance(library, found)
    except AttributeError as error:
        return Unavailable(f"this NVML is too old: {error}")
    return Unavailable("NVML does not know this GPU")


def _instance(library: Any, instance: Any) -> Gpu | Unavailable:
    whole = ctypes.c_void_p()
    parent_of = library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle
    if (said := parent_of(instance, ctypes.byref(whole))) != SUCCESS:
        return Unavailable(f"NVML does not report the GPU of this MIG instance (error {said})")
    return Gpu(library, instance, whole)
