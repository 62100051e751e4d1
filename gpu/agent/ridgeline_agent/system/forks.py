"""Handlers for forked children that do not keep their object alive."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def call_in_forked(method: Callable[[], None]) -> None:
    """Calls a bound method in every forked child, while its object exists. A handler cannot be
    removed, and a running kernel may create many such objects.
    """
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.WeakMethod(method)

    def forked() -> None:
        found = reference()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=forked)
