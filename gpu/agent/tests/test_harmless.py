"""Hooks that never hurt the user's program."""

from __future__ import annotations

import os

import pytest

from ridgeline_agent.patches.harmless import HookGuard, Notes, harmless


class Log:
    """Keeps since when the agent's own time was logged."""

    def __init__(self) -> None:
        self.began: list[int] = []

    def recorder_ran(self, began_ns: int) -> None:
        self.began.append(began_ns)


class Hooks:
    """Two hooks, of which one starts the profiler."""

    def __init__(self) -> None:
        self.guard = HookGuard(Notes("the profiler"))
        self.log = Log()

    @harmless
    def _some_hook(self, number: int) -> float:
        return 1 / number

    @harmless
    def starts(self) -> None:
        self.guard.log, self.guard.iteration_began_ns = self.log, 7


def test_an_error_becomes_a_note() -> None:
    hooks = Hooks()
    assert hooks._some_hook(2) == 0.5
    assert hooks._some_hook(0) is None and hooks._some_hook(0) is None
    assert hooks.guard.notes.texts == [
        "an error within the profiler, not in your program (some hook): "
        "ZeroDivisionError: division by zero"
    ]


def test_nothing_runs_in_a_child_or_once_it_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = Hooks()
    hooks.guard.is_inert = True
    assert hooks._some_hook(2) is None
    hooks.guard.is_inert = False
    monkeypatch.setattr(os, "getpid", lambda: hooks.guard.process + 1)
    assert hooks._some_hook(0) is None
    assert hooks.guard.notes.texts == []


def test_what_a_hook_takes_is_logged_while_the_profiler_runs() -> None:
    hooks = Hooks()
    hooks._some_hook(2)
    assert hooks.log.began == []
    # Where it is started, the iteration begins in the middle of the hook.
    hooks.starts()
    assert hooks.log.began == [7]
    hooks._some_hook(0)
    assert len(hooks.log.began) == 2 and hooks.log.began[1] > 7


def test_notes_have_a_bound() -> None:
    notes = Notes("the estimate")
    for number in range(200):
        notes.add(str(number % 100))
    assert notes.texts == [str(number) for number in range(50)]
    assert notes.tolerating("this", lambda: 1 / 0) is None
    assert notes.tolerating("that", lambda a: a, 3) == 3
