"""The interpreter's state, which the user's program must find as if Python had just begun."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import IO

from ..protocol.spec import RunSpec

# The zygote must have one thread when it forks, and OpenBLAS starts its threads when numpy is
# imported, where it reads this variable. OpenMP is left as it is: with a short GOMP_SPINCOUNT its
# threads go to sleep between operators, and an iteration of 5.8 ms took 7.0 ms.
_CALM = {"OPENBLAS_NUM_THREADS": "1"}
# The profiler's own messages do not belong into the log of what the program printed.
_QUIET = {"KINETO_LOG_LEVEL": "5"}
# Asks NVML instead of the driver whether there is a GPU; a driver that was called cannot be forked.
_NO_DRIVER_CALLS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Interpreter:
    """What was there before the agent changed it."""

    def __init__(self, agent_folder: str, loaded_at_start: frozenset[str]) -> None:
        self._agent_folder = agent_folder
        self._loaded_at_start = loaded_at_start
        self._python_path = os.environ.get("PYTHONPATH", "")
        # The variables that were set from here, and what they were.
        self._before: dict[str, str | None] = {}

    def calm_threads(self) -> None:
        """Sets variables that libraries read when they are loaded. What the user has set stays."""
        for name, value in {**_CALM, **_QUIET, **_NO_DRIVER_CALLS}.items():
            self._before[name] = os.environ.get(name)
            os.environ.setdefault(name, value)

    def hide_agent(self) -> None:
        """Takes the agent's folder off the path; by now its modules are loaded."""
        with contextlib.suppress(ValueError):
            sys.path.remove(self._agent_folder)

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """The environment as it was before the agent, with the configuration's variables.

        What imports have set stays: they would have set it in the program's own Python.
        """
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
        os.environ.update(variables)

    def become_program(self, spec: RunSpec, first_path: str, name: str) -> None:
        """Folder, arguments and import path as the program would have found them.

        `first_path` is what Python puts first in `sys.path`, `name` is `sys.argv[0]`.
        """
        os.chdir(spec.cwd)
        sys.argv[:] = [name, *spec.args]
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, first_path)
            self._forget_shadowed(first_path)
        sys.path[1:1] = self._new_python_path(spec.env)
        for stream in (sys.stdout, sys.stderr):
            _speak_utf8(stream)
        _tell_multiprocessing(spec.cwd)

    def _new_python_path(self, variables: Mapping[str, str]) -> list[str]:
        """What of PYTHONPATH Python did not take at its start: all of it where the configuration
        has another one, and relative folders, because the agent starts elsewhere.
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

        A program with a `queue.py` or `datasets.py` beside it imports that file; here another
        module of that name is loaded already. What was loaded at Python's start comes before the
        program for Python as well.
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


def _speak_utf8(stream: IO[str]) -> None:
    """The log is UTF-8, and a print must not fail in it that would not fail in a terminal."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[attr-defined]


def _tell_multiprocessing(cwd: str) -> None:
    """Workers that are started afresh go to this folder first; multiprocessing noted it at its
    import.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = cwd  # type: ignore[attr-defined]
