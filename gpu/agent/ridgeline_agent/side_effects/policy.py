"""What becomes of what a measured program writes: `side_effects` of the configuration.

In the run's process, `hold` is called before anything of the workspace runs. In the process that
watches the run, `take` says at its end what was kept from the disk.
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
    """For a process that is not forked for its run: makes ready for `hold`, which later on its
    threads would keep it from. Call it before torch is imported.
    """
    if _CAN_HOLD and not redirect.is_held():
        redirect.enter_namespace()


def ask_ahead() -> None:
    """For a process that forks runs: asks once for all of them what the system allows."""
    if _CAN_HOLD:
        redirect.refusal()


def hold(spec: RunSpec) -> None:
    """From now on what this process writes is thrown away, or refused."""
    if not _CAN_HOLD or redirect.is_held():
        return  # A rank below a launcher that is.
    # Ranks tell how far they are in the folder of the whole run.
    out = os.path.dirname(spec.out) if spec.rank else spec.out
    redirect.hold(spec.side_effects, spec.root, spec.cwd, out, spec.keep_writes)


def holding(spec: RunSpec, command: list[str], boot: str, out: str) -> list[str]:
    """The command, started so that it and all that it starts on this machine are held."""
    if spec.side_effects == "allow" or not sys.platform.startswith("linux"):
        return command
    how = json.dumps([spec.side_effects, spec.root, spec.cwd, out, *spec.keep_writes])
    return [sys.executable, "-u", boot, "--hold", how, *command]


def become_held(arguments: list[str]) -> NoReturn:
    """What `holding` starts."""
    mode, root, cwd, out, *keep = json.loads(arguments[0])
    # What a process replaces within itself would not reach the ranks. They do so by themselves.
    if redirect.is_usable(root, cwd):
        redirect.hold(mode, root, cwd, out, keep)
    os.execvp(arguments[1], arguments[1:])


def take(spec: RunSpec) -> dict[str, Any] | None:
    """`side_effects` of the event that ends the run; None where nothing was held."""
    if spec.side_effects == "allow":
        return None
    if not _CAN_HOLD:
        nothing: dict[str, Any] = {"mode": spec.side_effects, "held_by": "nothing", "open": []}
        return {**nothing, "changes": [], "count": 0, "bytes": 0, "is_whole": True}
    return discarded_writes.take(spec)


def in_words(side_effects: dict[str, Any]) -> str:
    """A line for the log, for where nobody shows the list."""
    return discarded_writes.in_words(side_effects)


class DiskWatch:
    """See discarded_writes.DiskWatch."""

    def __init__(self, spec: RunSpec) -> None:
        watched = spec.side_effects != "allow" and _CAN_HOLD
        self._watch = discarded_writes.DiskWatch(spec.out) if watched else None

    def why_stop(self) -> str | None:
        """Why the run has to end, where it does."""
        if self._watch is None or not self._watch.is_too_much():
            return None
        return (
            "stopped: its redirected files used half of the free disk space. A large file that "
            "the program opens "
            "for writing is copied first: add its folder to `keep_writes`, or use side_effects = "
            '"allow"'
        )


def sweep() -> None:
    """Removes what runs left behind that were killed together with the process that watches."""
    if _CAN_HOLD:
        discarded_writes.sweep(os.environ)
