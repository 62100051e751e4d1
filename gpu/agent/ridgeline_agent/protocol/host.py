"""What the recorder may ask of the process that it runs in."""

from __future__ import annotations

from typing import NoReturn, Protocol

STAGES = ("starting", "estimating", "probing", "warm-up", "timing", "profiling", "saving")


class Host(Protocol):
    """`process.run.RunHost` is the one that runs; tests of the recorder bring their own."""

    def progress(self, stage: str, done: int, total: int) -> None:
        """Tells how far the run is. `stage` is one of STAGES."""

    def timed(self, iterations: int) -> None:
        """So many iterations have been timed. Between two of them others may have their turn."""

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        """Ends the process at once: no `finally` of the user's runs, so that no checkpoint is
        written.

        `outcome` is `complete`, `short` or `failed` after a manifest was written, and `exited`,
        with the reason as the message, where none could be (a full disk).
        """
        ...
