"""The phases of training in progress."""

from __future__ import annotations

import threading


class OpenPhases(threading.local):
    """The phases and outermost module calls that are open on each thread."""

    def __init__(self) -> None:
        self._phases: list[int] = []
        self._calls = 0

    def enter(self, phase: int) -> bool:
        """Opens a phase. Returns whether no phase of its kind was open."""
        outermost = not self.has(phase)
        self._phases.append(phase)
        return outermost

    def leave(self, phase: int) -> None:
        """Closes the innermost phase of this kind, and all that an error left open inside."""
        for at in range(len(self._phases) - 1, -1, -1):
            if self._phases[at] == phase:
                del self._phases[at:]
                return

    def has(self, phase: int) -> bool:
        return phase in self._phases

    def innermost(self) -> int | None:
        return self._phases[-1] if self._phases else None

    def call(self) -> bool:
        """Begins a module call. Returns whether it is an outermost one."""
        self._calls += 1
        return self._calls == 1

    def is_in_call(self) -> bool:
        """Whether a module call is in progress."""
        return self._calls > 0

    def called(self) -> bool:
        """Ends a module call. Returns whether it was an outermost one."""
        self._calls = max(0, self._calls - 1)
        return self._calls == 0
