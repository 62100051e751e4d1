"""Hooks that never hurt the user's program: what goes wrong in them becomes a note.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_MOST_NOTES = 50

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Notes:
    """What a person who reads the result should know, each text once.

    Args:
        measured_by: Whose errors those of the agent are: "the profiler" or "the estimate".
    """

    def __init__(self, measured_by: str) -> None:
        self.texts: list[str] = []
        self._measured_by = measured_by

    def add(self, text: str) -> None:
        """Adds a text."""
        if text not in self.texts and len(self.texts) < _MOST_NOTES:
            self.texts.append(text)

    def error(self, what: str, error: BaseException) -> None:
        """Adds an error of the agent's own."""
        text = f"{type(error).__name__}: {error}"
        self.add(f"an error within {self._measured_by}, not in your program ({what}): {text}")

    def tolerating(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls what the result can do without: its errors become notes."""
        try:
            return function(*args)
        except Exception as error:
            self.error(what, error)
            return None


class OwnTimeLog(Protocol):
    """Logs what is no time of the program's."""

    def recorder_ran(self, began_ns: int) -> None:
        """The time from `began_ns` until now was the agent's own."""


class HookGuard:
    """Whether hooks run in this process, and where their errors and their time go."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.process = os.getpid()
        # Nothing is measured in this process any more.
        self.is_inert = False
        # Logs what hooks take; None while no profiler runs.
        self.log: OwnTimeLog | None = None
        # When the profiled iteration began, by the realtime clock.
        self.iteration_began_ns = 0


def harmless(method: _Method) -> _Method:
    """A method that is a hook, of an object with a `HookGuard` named `guard`.

    It does nothing in a child of the program. Its errors become notes, and what it takes is logged
    while the profiler runs.
    """

    @functools.wraps(method)
    def guarded(self: Any, *args: Any) -> Any:
        guard = self.guard
        if guard.is_inert or os.getpid() != guard.process:
            return None
        log = guard.log
        began_ns = 0 if log is None else time.time_ns()
        try:
            return method(self, *args)
        except Exception as error:
            guard.notes.error(method.__name__.strip("_").replace("_", " "), error)
            return None
        finally:
            if log is None and guard.log is not None:
                # The profiler was started within the hook, and so was the iteration.
                log, began_ns = guard.log, guard.iteration_began_ns
            if began_ns:
                log.recorder_ran(began_ns)

    return guarded  # type: ignore[return-value]
