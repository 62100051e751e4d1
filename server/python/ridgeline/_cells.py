"""The cells that ran in this kernel, and where they are in the notebook's file."""

from __future__ import annotations

import json
import os
from typing import Any

# A larger notebook is not read; its cells are named by their execution count.
_MAX_BYTES = 64 * 2**20


class Cells:
    """Names the cells of a kernel: `train.ipynb#3` is the third code cell in the file, and `In[5]`
    a cell that is not in a known file.

    Args:
        raw_cell: The text of the current cell.
        transformed_cell: The same as Python.
    """

    def __init__(self, shell: Any, raw_cell: str, transformed_cell: str) -> None:
        self._shell = shell
        self._current = (raw_cell, transformed_cell)
        self._count = shell.execution_count
        self.notebook = _notebook(shell)
        self.folder = os.getcwd() if self.notebook is None else os.path.dirname(self.notebook)
        self._saved = [] if self.notebook is None else _code_cells(self.notebook)
        # By path: the text as it is in the notebook, and the same as Python.
        self.texts: dict[str, str] = {}
        self.python: dict[str, str] = {}
        self._paths: dict[int, str] = {}

    @property
    def current(self) -> str:
        """The path of the current cell."""
        return self._path(self._count)

    def path_of_file(self, filename: str) -> str | None:
        """Returns the path of a cell, given the file name of its code objects; None for files."""
        count = getattr(self._shell.compile, "_filename_map", {}).get(filename)
        return None if count is None else self._path(count)

    def _path(self, count: int) -> str:
        path = self._paths.get(count)
        if path is None:
            raw, python = self._text(count)
            # IPython removes empty lines at the beginning before it compiles a cell.
            text = _without_empty_beginning(raw)
            path = self._place(raw, text)
            if path is None:
                path = os.path.join(self.folder, f"In[{count}]")
            self._paths[count] = path
            self.texts[path], self.python[path] = text, python
        return path

    def _text(self, count: int) -> tuple[str, str]:
        if count == self._count:
            return self._current
        history = self._shell.history_manager
        try:
            return history.input_hist_raw[count], history.input_hist_parsed[count]
        except IndexError:
            return "", ""

    def _place(self, raw: str, text: str) -> str | None:
        """Returns the path of the saved cell with this text, or with most of its lines."""
        wanted = raw.strip()
        for number, saved in enumerate(self._saved, 1):
            if saved.strip() == wanted:
                return f"{self.notebook}#{number}"
        lines = _lines(text)
        common = [len(lines & _lines(saved)) for saved in self._saved]
        most = max(common, default=0)
        path = f"{self.notebook}#{common.index(most) + 1}" if 2 * most > len(lines) else None
        return None if path in self.texts else path


def _notebook(shell: Any) -> str | None:
    """Returns the path of the notebook's file, as VS Code and Jupyter Server pass it."""
    for path in (shell.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if isinstance(path, str) and path.endswith(".ipynb") and os.path.isfile(path):
            return os.path.realpath(path)
    return None


def _code_cells(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        notebook = json.loads(content) if len(content) <= _MAX_BYTES else {}
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        return ["".join(cell["source"]) for cell in cells]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _without_empty_beginning(text: str) -> str:
    lines = text.split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    return "\n".join(lines)


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n")} - {""}
