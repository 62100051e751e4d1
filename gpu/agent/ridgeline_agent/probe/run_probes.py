"""Probes: times single operators as recorded and in other variants, and optimizers in PyTorch's
variants (docs/whatif.md). No workspace code runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, NoReturn

import torch

from ..protocol.host import Host
from ..protocol.spec import RunSpec
from ..system.private_files import private
from .operators import probe_operator
from .optimizers import probe_optimizer
from .recurrent_cells import probe_cell

STAGE = "probing"
NAME = "probes.json"
VERSION = 1
_MAX_REQUEST_BYTES = 16 * 2**20
_MAX_ITEMS = 1000
_MAX_NOTES = 50
_DEFAULT_SECONDS = 10.0
# Optimizers and cells go first, because a few numbers about them are informative. Their parts end
# after these shares of the time.
_OPTIMIZERS_END = 0.34
_CELLS_END = 0.67
# The part of the run's limit that is reserved for writing the results.
_SECONDS_TO_WRITE = 1.0
# The memory limit of a probe if the run has none.
_DEFAULT_MEMORY_BYTES = 4 * 2**30
# The maximum size over which copies of tensors rotate: the last-level cache of a large machine is
# shared, and never available to one program.
_MAX_ROTATED_BYTES = 64 * 2**20


def run_probes(spec: RunSpec, host: Host) -> NoReturn:
    """Measures what the request lists, writes `probes.json` and ends the process."""
    began = time.monotonic()
    try:
        request = _read(spec.probe or "")
    except (OSError, ValueError, RecursionError) as error:
        host.finish("exited", f"the request for probes cannot be read: {error}")
    device = _device(spec)
    answers = ProbeResults(spec, host, request)
    answers.apply_settings(device)
    try:
        with torch.no_grad():
            answers.measure(device, began)
        answers.write()
    except OSError as error:
        host.finish("exited", f"the probes could not be written: {error.strerror or error}")
    host.finish("complete")


class ProbeResults:
    """The results so far."""

    def __init__(self, spec: RunSpec, host: Host, request: dict[str, Any]) -> None:
        self._spec = spec
        self._host = host
        self._request = request
        self._operators = _items(request, "operators")
        self._optimizers = _items(request, "optimizers")
        self._cells = _items(request, "cells")
        self._notes: dict[str, None] = {}
        self._written = 0.0
        self._answer: dict[str, Any] = {
            "version": VERSION,
            "torch": str(torch.__version__),
            "operators": [{} for _ in self._operators],
            "optimizers": [{} for _ in self._optimizers],
            "cells": [{} for _ in self._cells],
            "notes": [],
        }

    def apply_settings(self, device: torch.device) -> None:
        """Applies the program's settings that affect how operators run."""
        settings = self._request.get("settings")
        settings = settings if isinstance(settings, dict) else {}
        threads = settings.get("threads")
        if device.type == "cpu" and type(threads) is int and 0 < threads <= 4096:
            torch.set_num_threads(threads)
        with contextlib.suppress(Exception):
            torch.set_float32_matmul_precision(settings.get("matmul_precision") or "highest")
        torch.backends.cudnn.benchmark = settings.get("cudnn_benchmark") is True
        if settings.get("cudnn_tf32") is False:
            torch.backends.cudnn.allow_tf32 = False
        if settings.get("deterministic") is True:
            torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(0)

    def measure(self, device: torch.device, began: float) -> None:
        """Measures the requested items in order of priority, until the time is up."""
        seconds = _number(self._request, "seconds", _DEFAULT_SECONDS)
        if self._spec.limits.seconds is not None:
            seconds = min(seconds, max(self._spec.limits.seconds - _SECONDS_TO_WRITE, 0.5))
        memory = self._spec.limits.memory_bytes or _DEFAULT_MEMORY_BYTES
        rotated = min(
            _number(self._request, "working_set_bytes", _MAX_ROTATED_BYTES), _MAX_ROTATED_BYTES
        )
        rotated = min(rotated, last_level_cache_bytes(device))
        ends = began + seconds
        parts: list[tuple[str, list[Any], Any, float]] = [
            ("optimizers", self._optimizers, probe_optimizer, _OPTIMIZERS_END),
            ("cells", self._cells, probe_cell, _CELLS_END),
            ("operators", self._operators, probe_operator, 1.0),
        ]
        parts = [part for part in parts if part[1]]
        done, total = 0, sum(len(items) for _, items, _, _ in parts)
        for number, (key, items, probe, share) in enumerate(parts, 1):
            part_ends = ends if number == len(parts) else began + share * seconds
            for index, request in enumerate(items):
                now = time.monotonic()
                if now >= ends:
                    self._note("the time limit was reached before everything was timed")
                    return
                until = now + max(part_ends - now, 0.0) / (len(items) - index)
                answer = probe(request, device, memory, rotated, until, self._note)
                self._answer[key][index] = answer
                done += 1
                self._host.progress(STAGE, done, total)
                if time.monotonic() - self._written > 1.0:
                    self.write()

    def write(self) -> None:
        """Writes the results so far. An operator may crash the process, and the other results are
        still valid.
        """
        self._answer["notes"] = list(self._notes)
        path = os.path.join(self._spec.out, NAME)
        with open(path + ".part", "w", encoding="utf-8", opener=private) as file:
            file.write(json.dumps(self._answer, allow_nan=False))
        os.replace(path + ".part", path)
        self._written = time.monotonic()

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES:
            self._notes[text] = None


def last_level_cache_bytes(device: torch.device) -> float:
    """Returns the size of the device's last-level cache, or a typical one if unknown."""
    if device.type == "cuda":
        properties: Any = torch.cuda.get_device_properties(device)
        return float(getattr(properties, "L2_cache_size", 0) or _MAX_ROTATED_BYTES)
    largest = 0.0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text().strip()
            unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
            largest = max(largest, float(text.rstrip("KMG")) * unit)
    return largest or 32.0 * 2**20


def _device(spec: RunSpec) -> torch.device:
    usable = spec.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda") if usable else torch.device("cpu")


def _read(path: str) -> dict[str, Any]:
    if os.path.getsize(path) > _MAX_REQUEST_BYTES:
        raise ValueError("it is too long")
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    if not isinstance(request, dict):
        raise ValueError("it is not an object")
    return request


def _items(request: dict[str, Any], key: str) -> list[Any]:
    items = request.get(key)
    return items[:_MAX_ITEMS] if isinstance(items, list) else []


def _number(request: dict[str, Any], key: str, default: float) -> float:
    value = request.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return default
    return float(value) if 0 < value < 1e15 else default
