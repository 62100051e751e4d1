"""Replaces attributes of torch and the standard library, and restores them.

Most runs end with their process. A running kernel continues, so everything is restored there.

Checked on torch 2.4.1, 2.8.0 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MISSING = object()
_undo: list[Callable[[], object]] = []


def replace(owner: Any, name: str, replacement: Any) -> None:
    """Sets an attribute of a module or class until `restore`."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, replacement)

    def undo() -> None:
        if vars(owner).get(name) is not replacement:
            # The program has replaced it since, with a function that may call ours.
            return
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    _undo.append(undo)


def on_restore(undo: Callable[[], object]) -> None:
    """Registers a function that undoes a change other than of an attribute."""
    _undo.append(undo)


def restore() -> None:
    """Undoes all changes, the last one first."""
    while _undo:
        _undo.pop()()
