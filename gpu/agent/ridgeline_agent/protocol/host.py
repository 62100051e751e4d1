"""The recorder's interface to the process that it runs in."""

from __future__ import annotations

from typing import NoReturn, Protocol

STAGES = ("starting", "estimating", "probing", "warm-up", "timing", "profiling", "saving")


class Host(Protocol):
    """Implemented by `process.run.RunHost`, and by fakes in the tests of the recorder."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Reports the progress of the run. `stage` is one of STAGES."""

    def timed(self, iterations: int) -> None:
        """Reports the number of timed iterations. Other versions may take their turn before the
        next.
        """

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        """Ends the process at once, without running the user's `finally` blocks, so no checkpoint
        is written.

        `outcome` is `complete`, `short` or `failed` after a manifest was written. It is `exited`,
        with the reason as the message, if none could be written (a full disk). In a running kernel
        it returns, and the hooks are gone (process/kernel.py).
        """
        ...
