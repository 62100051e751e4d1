"""Restores the interpreter's state, so that the user's program finds it as if Python had just
started.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import IO

from ..protocol.spec import RunSpec

# The zygote must have only one thread when it forks, and OpenBLAS starts its threads when numpy is
# imported, unless this variable is set. OpenMP is left unchanged: with a small GOMP_SPINCOUNT its
# threads sleep between operators, and an iteration of 5.8 ms took 7.0 ms.
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1"}
# The profiler's own messages do not belong in the log of the program's output.
_QUIET_PROFILER = {"KINETO_LOG_LEVEL": "5"}
# Uses NVML instead of the driver to check for a GPU; a process that called the driver cannot fork.
_NO_DRIVER_CALLS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Interpreter:
    """The state before the agent changed it."""

    def __init__(self, agent_folder: str, loaded_at_start: frozenset[str]) -> None:
        self._agent_folder = agent_folder
        self._loaded_at_start = loaded_at_start
        self._python_path = os.environ.get("PYTHONPATH", "")
        # The variables that were set here, and their previous values.
        self._before: dict[str, str | None] = {}

    def set_library_variables(self) -> None:
        """Sets variables that libraries read when they are loaded. Keeps the user's own values."""
        for name, value in {**_SINGLE_THREADED, **_QUIET_PROFILER, **_NO_DRIVER_CALLS}.items():
            self._before[name] = os.environ.get(name)
            os.environ.setdefault(name, value)

    def hide_agent(self) -> None:
        """Removes the agent's folder from the path. Its modules are loaded by now."""
        with contextlib.suppress(ValueError):
            sys.path.remove(self._agent_folder)

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """Restores the environment from before the agent, and adds the configuration's variables.

        Variables that imports have set stay, because they would also be set in the program's own
        Python.
        """
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
        os.environ.update(variables)

    def become_program(self, spec: RunSpec, first_path: str, name: str) -> None:
        """Sets folder, arguments and import path as the program expects them.

        `first_path` is the first entry of `sys.path`, `name` is `sys.argv[0]`.
        """
        os.chdir(spec.cwd)
        sys.argv[:] = [name, *spec.args]
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, first_path)
            self._forget_shadowed(first_path)
        sys.path[1:1] = self._new_python_path(spec.env)
        for stream in (sys.stdout, sys.stderr):
            _use_utf8(stream)
        _set_multiprocessing_folder(spec.cwd)

    def _new_python_path(self, variables: Mapping[str, str]) -> list[str]:
        """Returns the folders of PYTHONPATH that Python has not added at startup: all if the
        configuration changed it, and relative ones, because the agent starts in another folder.
        """
        path = variables.get("PYTHONPATH", self._python_path)
        is_new = path != self._python_path
        return [
            os.path.abspath(folder)
            for folder in path.split(os.pathsep)
            if folder and (is_new or not os.path.isabs(folder))
        ]

    def _forget_shadowed(self, folder: str) -> None:
        """Unloads modules that the program's own folder shadows.

        A program with its own `queue.py` or `datasets.py` imports that file, but here another
        module of that name is already loaded. Modules that Python itself loads at startup take
        precedence in plain Python too.
        """
        with contextlib.suppress(OSError):
            for entry in os.listdir(folder):
                name, dot, extension = entry.partition(".")
                is_package = not dot and os.path.exists(os.path.join(folder, entry, "__init__.py"))
                if name in self._loaded_at_start or not (extension == "py" or is_package):
                    continue
                if name in sys.modules and name not in sys.builtin_module_names and name != "torch":
                    for loaded in [
                        one for one in sys.modules if one == name or one.startswith(name + ".")
                    ]:
                        del sys.modules[loaded]


def _use_utf8(stream: IO[str]) -> None:
    """Makes the log UTF-8, without errors for prints that would not fail in a terminal."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[attr-defined]


def _set_multiprocessing_folder(cwd: str) -> None:
    """Sets the folder in which spawned workers start; multiprocessing stored it when it was
    imported.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = cwd  # type: ignore[attr-defined]
