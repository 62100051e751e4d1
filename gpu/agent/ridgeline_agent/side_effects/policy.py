"""What happens to the writes of a measured program: `side_effects` in the configuration.

In the run's process, `hold` is called before any workspace code runs. In the process that watches
the run, `take` lists the discarded writes at its end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

from ..protocol.spec import RunSpec

_CAN_HOLD = sys.platform != "win32"
if sys.platform != "win32":
    from . import discarded_writes, redirect


def prepare() -> None:
    """Prepares `hold` in a process that is not forked for its run, because it does not work once
    there are several threads. Call it before torch is imported.
    """
    if _CAN_HOLD and not redirect.is_redirected():
        redirect.enter_namespace()


def check_support() -> None:
    """Checks once what the system allows, in a process that forks runs."""
    if _CAN_HOLD:
        redirect.refusal()


def hold(spec: RunSpec) -> None:
    """Discards or denies the writes of this process from now on."""
    if not _CAN_HOLD or redirect.is_redirected():
        return  # A rank whose launcher is redirected.
    # Ranks report their progress in the folder of the whole run.
    out = os.path.dirname(spec.out) if spec.rank else spec.out
    redirect.hold(spec.side_effects, spec.root, spec.cwd, out, spec.keep_writes)


def wrap_command(spec: RunSpec, command: list[str], boot: str, out: str) -> list[str]:
    """Wraps the command so that it and all its children on this machine are redirected."""
    if spec.side_effects == "allow" or not sys.platform.startswith("linux"):
        return command
    how = json.dumps([spec.side_effects, spec.root, spec.cwd, out, *spec.keep_writes])
    return [sys.executable, "-u", boot, "--hold", how, *command]


def run_redirected(arguments: list[str]) -> NoReturn:
    """Runs the command that `wrap_command` wrapped."""
    mode, root, cwd, out, *keep = json.loads(arguments[0])
    # Patches in this process would not reach the ranks, which redirect themselves.
    if redirect.is_usable(root, cwd):
        redirect.hold(mode, root, cwd, out, keep)
    os.execvp(arguments[1], arguments[1:])


def take(spec: RunSpec) -> dict[str, Any] | None:
    """Returns `side_effects` for the event that ends the run, or None if writes are allowed."""
    if spec.side_effects == "allow":
        return None
    if not _CAN_HOLD:
        nothing: dict[str, Any] = {"mode": spec.side_effects, "held_by": "nothing", "open": []}
        return {**nothing, "changes": [], "count": 0, "bytes": 0, "is_whole": True}
    return discarded_writes.take(spec)


def summary(side_effects: dict[str, Any]) -> str:
    """Returns a line for the log, for callers that do not show the list."""
    return discarded_writes.summary(side_effects)


class DiskWatch:
    """See discarded_writes.DiskWatch."""

    def __init__(self, spec: RunSpec) -> None:
        watched = spec.side_effects != "allow" and _CAN_HOLD
        self._watch = discarded_writes.DiskWatch(spec.out) if watched else None

    def why_stop(self) -> str | None:
        """Returns the reason to stop the run, or None."""
        if self._watch is None or not self._watch.is_too_much():
            return None
        return (
            "stopped: its redirected files used half of the free disk space. A large file that "
            "the program opens "
            "for writing is copied first: add its folder to `keep_writes`, or use side_effects = "
            '"allow"'
        )


def sweep() -> None:
    """Removes leftovers of runs that were killed together with their watching process."""
    if _CAN_HOLD:
        discarded_writes.sweep(os.environ)
