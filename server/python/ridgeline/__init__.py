"""The `%%ridgeline` magic: `%load_ext ridgeline` in a notebook or IPython (docs/notebooks.md)."""

from __future__ import annotations

from typing import Any

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

_loaded: Any = None


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext ridgeline`."""
    global _loaded
    from ._magic import CellMagic

    if _loaded is None:
        _loaded = CellMagic(shell)
        _loaded.register()


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext ridgeline`."""
    global _loaded
    if _loaded is not None:
        _loaded.unregister()
        _loaded = None
