"""Runs the code cells of a notebook as one program, without Jupyter.

Each cell is compiled as a file of its own, `train.ipynb#3` for the third code cell, so that lines
belong to cells. Magics and shell commands are IPython's: those that would change what the program
does are carried out where that is possible, and otherwise skipped and noted.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import io
import json
import linecache
import os
import re
import runpy
import shlex
import sys
import tokenize
from collections.abc import Callable
from typing import Any

from ..failure.exception import EntryError
from ..program import notebook_cells
from .notebook_modules import MissingModules

SUFFIX = ".ipynb"
# A notebook with pictures can be long. Python needs about six times as much to read it.
_MAX_BYTES = 256 * 2**20
# The rest of a cell with one of these magics is Python.
_PYTHON_CELLS = {"time", "timeit", "capture", "prun", "python", "python3", "ridgeline"}
# `%time`, `!ls`, `?name`, with the indentation before them.
_MAGIC = re.compile(r"^(\s*)(%{1,2}|!{1,2}|\?{1,2})\s*(.*)$")
_HELP = re.compile(r"^(\s*)[\w.*]+\?{1,2}\s*$")
# IPython carries these out without a mark before them.
_BARE_COMMAND = re.compile(r"^(\s*)(pip|conda|mamba|uv|ls|cat|mkdir|rm) (\w|[./~]|-[^ ])")
# `-n 10 -r3 ` in `%timeit -n 10 -r3 f(x)`.
_TIMEIT_OPTIONS = re.compile(r"^(-([nrp] ?\S+|\S+)\s+)+")
_TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Notebook:
    """The program of a notebook.

    Args:
        path: The notebook's file.
        names: The namespace in which its cells run.
    """

    def __init__(self, path: str, names: dict[str, Any]) -> None:
        self._path = path
        self._names = names

    def run(self) -> None:
        """Runs all code cells. Their exceptions propagate unchanged."""
        # Plots need no window.
        os.environ.setdefault("MPLBACKEND", "Agg")
        shell = Shell(self._names)
        self._names.update(
            __name__="__main__",
            get_ipython=lambda: shell,
            display=lambda *objects, **options: None,
        )
        MissingModules().install()
        cells: list[tuple[str, str]] = []
        # A cell may have been added since the notebook was saved.
        for number, saved in enumerate([*_cells(self._path), None], 1):
            name = f"{self._path}#{number}"
            text = _unsaved(name)
            text = saved if text is None else text
            if text is not None:
                cells.append((name, text))
        for name, text in cells:
            notebook_cells.TEXTS[os.path.realpath(name)] = text.encode("utf-8", "surrogateescape")
            lines = text.splitlines(keepends=True)
            linecache.cache[name] = (len(text), None, lines, name)
        if any("IPython" in text and "get_ipython" in text for _, text in cells):
            _share_shell(self._names, shell)
        for name, text in cells:
            try:
                self._run_cell(name, text)
            except Exception:
                # Something that was skipped may be the cause.
                if note := notebook_cells.note():
                    print(note, file=sys.stderr)
                raise

    def _run_cell(self, name: str, text: str) -> None:
        source = self.python(name, text)
        python = source.encode("utf-8", "surrogateescape")
        notebook_cells.PYTHON[os.path.realpath(name)] = python
        code = compile(source, name, "exec", flags=_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, self._names))
        else:
            exec(code, self._names)

    def python(self, name: str, text: str) -> str:
        """Returns the Python code of a cell, with the same lines."""
        lines = text.split("\n")
        start = next((at for at, line in enumerate(lines) if line.strip()), 0)
        if lines[start].lstrip().startswith("%%"):
            magic, _, argument = lines[start].strip()[2:].partition(" ")
            if magic in ("writefile", "file"):
                body = "\n".join(lines[start + 1 :])
                call = f"get_ipython().run_cell_magic('writefile', {argument!r}, {body!r})"
                return "\n" * start + call
            if magic not in _PYTHON_CELLS:
                self._skip(name, f"%%{magic}")
                return ""
            lines[start] = ""
        # From the last line on which a statement could begin.
        statement = 0
        for at, line in enumerate(lines):
            replaced, is_skipped = _replaced(line)
            if replaced is not None and not _is_open(lines[statement:at]):
                lines[at] = replaced
                statement = at + 1
                if is_skipped:
                    self._skip(name, line.strip())
        return "\n".join(lines)

    def _skip(self, name: str, what: str) -> None:
        cell = name.rpartition("#")[2]
        notebook_cells.SKIPPED.append(f"cell {cell}: {what[:80]}")


class Shell:
    """The result of `get_ipython()`. Magics that it does not know do nothing."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.user_ns = names

    def run_line_magic(self, magic: str, line: str, *arguments: object) -> None:
        """Carries out `%env`, `%cd` and `%run`."""
        if magic in ("env", "set_env"):
            name, found, value = line.partition("=" if "=" in line else " ")
            if found:
                os.environ[name.strip()] = value.strip()
        elif magic == "cd" and line:
            os.chdir(os.path.expanduser(line.strip("'\"")))
        elif magic == "run":
            self._run_file(line)

    def run_cell_magic(self, magic: str, line: str, cell: str) -> None:
        """Runs the cell of `%%time` and similar magics, and writes the file of `%%writefile`."""
        if magic == "writefile":
            mode = "a" if line.startswith("-a ") else "w"
            name = line[3:] if mode == "a" else line
            with open(os.path.expanduser(name.strip("'\" ")), mode, encoding="utf-8") as file:
                file.write(cell if cell.endswith("\n") else cell + "\n")
            # A later cell may import it.
            importlib.invalidate_caches()
        elif magic in _PYTHON_CELLS:
            name = f"<cell of %%{magic}>"
            exec(compile(cell, name, "exec", dont_inherit=True), self.user_ns)

    def _run_file(self, arguments: str) -> None:
        """Runs a script in the notebook's namespace (`%run train.py --epochs 1`)."""
        words = [word for word in shlex.split(arguments) if word not in ("-i", "-n", "-t")]
        if not words:
            return
        before = list(sys.argv)
        sys.argv[:] = words
        try:
            self.user_ns.update(runpy.run_path(words[0], run_name="__main__"))
        finally:
            sys.argv[:] = before

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: None


def _share_shell(names: dict[str, Any], shell: Shell) -> None:
    """Makes `IPython.get_ipython` return the shell for the cells: outside of a kernel it returns
    None, which libraries still get.
    """
    try:
        module = importlib.import_module("IPython")
        original = module.get_ipython
    except Exception:
        return  # The cell that imports it fails in the same way.

    def get_ipython() -> object:
        return shell if sys._getframe(1).f_globals is names else original()

    module.get_ipython = get_ipython  # type: ignore[attr-defined]


def _replaced(line: str) -> tuple[str | None, bool]:
    """Returns the Python code for a line that is not Python, and whether that skips something; for
    all other lines None.
    """
    if found := _MAGIC.match(line):
        indent, mark, rest = found.groups()
        if mark.startswith("!"):
            return f"{indent}pass", True
        magic, _, argument = rest.partition(" ")
        if mark == "%" and magic in ("time", "timeit"):
            statement = _TIMEIT_OPTIONS.sub("", argument.strip() + " ").strip()
            return f"{indent}{statement or 'pass'}", False
        if mark.startswith("%"):
            call = f"get_ipython().run_line_magic({magic!r}, {argument.strip()!r})"
            return indent + call, False
        return f"{indent}pass", False
    # `files = !ls`, `home = %env HOME`.
    target, _, value = line.partition("=")
    names, mark = target.replace(",", " ").split(), value.lstrip()[:1]
    if mark in ("!", "%") and names and all(name.isidentifier() for name in names):
        return f"{target}= {'[]' if mark == '!' else 'None'}", True
    if found := _HELP.match(line):
        return f"{found[1]}pass", False
    if found := _BARE_COMMAND.match(line):
        return f"{found[1]}pass", True
    return None, False


def _cells(path: str) -> list[str]:
    """Returns the texts of the code cells."""
    name = os.path.basename(path)
    try:
        with io.open_code(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise EntryError(f"{name} cannot be read: {error.strerror or error}") from None
    if len(content) > _MAX_BYTES:
        raise EntryError(f"{name} is larger than {_MAX_BYTES // 2**20} MB")
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError):
        raise EntryError(f"{name} is not a notebook: it is not JSON") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise EntryError(f"{name} is not a notebook of format 4: open and save it in Jupyter")
    texts = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source")
            parts = source if isinstance(source, list) else [source]
            texts.append("".join(part for part in parts if isinstance(part, str)))
    return texts


def _unsaved(name: str) -> str | None:
    """Returns the text that replaces a cell: the overlay takes its name for that of a file."""
    try:
        with io.open_code(name) as file:
            return file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return None


def _is_open(lines: list[str]) -> bool:
    """Whether a string or a bracket is not closed at the end of these lines."""
    try:
        for _ in tokenize.generate_tokens(iter([line + "\n" for line in lines]).__next__):
            pass
    except (tokenize.TokenError, SyntaxError) as error:
        return "EOF" in str(error) or "unterminated" in str(error)
    return bool(lines) and lines[-1].endswith("\\")
