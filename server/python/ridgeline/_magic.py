"""`%%ridgeline`: profiles one cell while it runs, and prints it with the cost of each line.

The magic is an input transformation that removes its line, and two events around the cell. So the
cell itself runs as without it: its last value is displayed, `await` works, and an exception
propagates.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from typing import Any

from IPython.core.error import UsageError

from ._binary import BinaryError, call
from ._cells import Cells

_MAGIC = re.compile(r"%%ridgeline[ \t]*(?P<options>[^\n]*)(?:\n|$)")


class CellMagic:
    """The magic of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        # Cells may run within a cell.
        self._depth = 0
        self._profile: _Profile | None = None

    def register(self) -> None:
        shell = self._shell
        shell.input_transformers_cleanup.append(self._without_magic)
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)
        # For completion, and for places where the transformation does not apply.
        shell.register_magic_function(_misplaced, "cell", "ridgeline")

    def unregister(self) -> None:
        shell = self._shell
        shell.input_transformers_cleanup.remove(self._without_magic)
        shell.events.unregister("pre_run_cell", self._begin)
        shell.events.unregister("post_run_cell", self._end)
        shell.magics_manager.magics["cell"].pop("ridgeline", None)

    def _without_magic(self, lines: list[str]) -> list[str]:
        if self._depth == 0 and lines and _MAGIC.match(lines[0]):
            # The lines keep their numbers.
            return ["\n", *lines[1:]]
        return lines

    def _begin(self, info: Any) -> None:
        transformed_cell = getattr(info, "transformed_cell", None)
        if transformed_cell is None:
            transformed_cell = self._shell.transform_cell(info.raw_cell)
        self._depth += 1
        found = _MAGIC.match(info.raw_cell.lstrip())
        if found is None or self._depth > 1:
            return
        if found["options"].strip():
            print(f"%%ridgeline takes no options: {found['options'].strip()}", file=sys.stderr)
        profile = _Profile(self._shell, info.raw_cell, transformed_cell)
        try:
            profile.start()
        except Exception as error:
            _not_profiled(str(error))
            profile.discard()
            return
        self._profile = profile

    def _end(self, result: Any) -> None:
        # The cell that loads this extension begins before it.
        self._depth = max(0, self._depth - 1)
        if self._depth > 0:
            return
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.end(is_failed=not result.success)


class _Profile:
    """The profile of one cell."""

    def __init__(self, shell: Any, raw_cell: str, transformed_cell: str) -> None:
        self._shell = shell
        self._raw_cell = raw_cell
        self._cells = Cells(shell, raw_cell, transformed_cell)
        self._request: dict[str, Any] = {}

    def start(self) -> None:
        try:
            import torch
        except ImportError:
            raise BinaryError("this kernel has no PyTorch") from None
        shell = self._shell
        where = self._cells.notebook or self._cells.folder
        started = json.loads(call("begin", request={"path": where}))
        self._request = started["request"]
        _load_agent(started["agent"])
        from ridgeline_agent.process.kernel import CellRecording

        words = set(re.findall(r"\w+", self._raw_cell))
        optimizers = [
            value
            for name, value in shell.user_ns.items()
            if name in words and isinstance(value, torch.optim.Optimizer)
        ]
        self._recording = CellRecording(self._request, self._cells, optimizers)
        self._recording.start()

    def end(self, is_failed: bool) -> None:
        try:
            why = self._recording.end(is_failed)
            if why is not None:
                _not_profiled(why)
                self.discard()
                return
            texts = {self._shown(path): text for path, text in self._cells.texts.items()}
            request = {
                "recording": self._request["out"],
                "root": self._request["root"],
                "cell": self._shown(self._cells.current),
                "texts": texts,
            }
            color = "never" if os.environ.get("NO_COLOR") else "always"
            print(call("end", "--color", color, request=request), end="")
        except Exception as error:
            _not_profiled(str(error))

    def discard(self) -> None:
        """Removes a recording without a measurement."""
        if "out" in self._request:
            shutil.rmtree(self._request["out"], ignore_errors=True)

    def _shown(self, path: str) -> str:
        root = os.path.realpath(self._request["root"])
        return os.path.relpath(os.path.realpath(path), root).replace(os.sep, "/")


def _load_agent(folder: str) -> None:
    """Imports the agent, without changing the search path of modules."""
    name = "ridgeline_agent"
    if name in sys.modules:
        return
    package = os.path.join(folder, name)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        raise BinaryError(f"the agent could not be loaded from {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _misplaced(line: str, cell: str) -> None:
    raise UsageError("%%ridgeline must be the first line of a cell")


def _not_profiled(why: str) -> None:
    print(f"Not profiled: {why}", file=sys.stderr)
