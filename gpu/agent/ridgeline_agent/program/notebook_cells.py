"""The cells of the notebook that this process runs (process/notebook.py). A process runs one."""

from __future__ import annotations

from collections.abc import Callable

# By real path, `…/train.ipynb#3`: the cell as it is in the notebook, magics included.
TEXTS: dict[str, bytes] = {}
# The same as Python, with the same lines.
PYTHON: dict[str, bytes] = {}
# What is no Python and was skipped: `cell 3: !pip install numpy`.
SKIPPED: list[str] = []
_MAX_NAMED = 5
# In a running kernel: returns the path of a cell, given the file name of its code objects; None if
# it is no cell.
cell_of_file: Callable[[str], str | None] | None = None


def path_of(filename: str) -> str:
    """Returns the path of a code object's file, given its name."""
    found = None if cell_of_file is None else cell_of_file(filename)
    return filename if found is None else found


def note() -> str | None:
    """Returns a note about what was skipped, for the recording."""
    if not SKIPPED:
        return None
    named = "; ".join(SKIPPED[:_MAX_NAMED])
    more = len(SKIPPED) - _MAX_NAMED
    return f"skipped in the notebook: {named}" + (f"; and {more} more" if more > 0 else "")
