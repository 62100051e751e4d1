"""Hooks that never break the user's program: errors in them become notes.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from time import perf_counter_ns, time_ns
from typing import Any, Protocol, TypeVar

from ..system.hook_time import HookTime

_MAX_NOTES = 50

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Notes:
    """Notes for the user about the result, without duplicates.

    Args:
        measured_by: Who reports errors of the agent: "the profiler" or "the estimate".
    """

    def __init__(self, measured_by: str) -> None:
        self.texts: list[str] = []
        self._measured_by = measured_by

    def add(self, text: str) -> None:
        if text not in self.texts and len(self.texts) < _MAX_NOTES:
            self.texts.append(text)

    def error(self, what: str, error: BaseException) -> None:
        """Adds an internal error of the agent."""
        text = f"{type(error).__name__}: {error}"
        self.add(f"an error within {self._measured_by}, not in your program ({what}): {text}")

    def tolerating(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls something optional. Its errors become notes."""
        try:
            return function(*args)
        except Exception as error:
            self.error(what, error)
            return None


class OwnTimeLog(Protocol):
    """Logs the time that does not belong to the program."""

    def recorder_ran(self, began_ns: int) -> None:
        """Reports that the time from `began_ns` until now was the agent's own."""


class HookGuard:
    """Whether hooks run in this process, and where their errors and times are reported."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.process = os.getpid()
        # Set when nothing is measured in this process any more.
        self.is_inert = False
        # Adds up the time that hooks take.
        self.time = HookTime()
        # Logs the time that hooks take; None while no profiler runs.
        self.log: OwnTimeLog | None = None
        # Start of the profiled iteration, in nanoseconds of the realtime clock.
        self.iteration_began_ns = 0


def harmless(method: _Method) -> _Method:
    """Makes a method a hook, on an object with a `HookGuard` named `guard`.

    The hook does nothing in child processes. Its errors become notes. Its time is added up, and
    logged while the profiler runs.
    """

    @functools.wraps(method)
    def guarded(self: Any, *args: Any) -> Any:
        guard = self.guard
        if guard.is_inert or os.getpid() != guard.process:
            return None
        time = guard.time
        time.began_ns = hook_began_ns = perf_counter_ns()
        log = guard.log
        began_ns = 0 if log is None else time_ns()
        try:
            return method(self, *args)
        except Exception as error:
            guard.notes.error(method.__name__.strip("_").replace("_", " "), error)
            return None
        finally:
            if log is None and guard.log is not None:
                # The hook itself started the profiler, and with it the iteration.
                log, began_ns = guard.log, guard.iteration_began_ns
            if began_ns:
                log.recorder_ran(began_ns)
            time.ran(hook_began_ns)

    return guarded  # type: ignore[return-value]
