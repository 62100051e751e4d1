"""Finds the installed modules that a project imports, and imports them before a run needs them.

The project's own modules are never imported: they change between saves, and only a run may run
them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator

from ..protocol.channel import Sender
from ..protocol.spec import Entry

# A project has tens of files. More means that a library was mistaken for a project.
_MAX_FILES = 500
_MAX_FILE_BYTES = 4 * 2**20


class Preimports:
    """Imports modules one by one, and checks after each whether forking is still safe."""

    def __init__(self, events: Sender, check_after_each: bool) -> None:
        self._events = events
        self._check = check_after_each
        # Modules that could not be imported, and why. The program itself will fail in the same way.
        self.failed: dict[str, str] = {}

    def take(self, entry: Entry, root: str, exclude: frozenset[str]) -> bool:
        """Imports the project's modules. Returns False after an import that made the zygote unsafe
        to fork.
        """
        from .zygote import why_unsafe

        self.failed = {}
        for module in installed_imports(entry, root):
            if module in sys.modules or any(
                module == one or module.startswith(one + ".") for one in exclude
            ):
                continue
            # Sent before the import, because an import may end the process.
            self._events.send({"event": "importing", "module": module})
            try:
                importlib.import_module(module)
            except BaseException as error:  # Also sys.exit: an import may do anything.
                self.failed[module] = f"{type(error).__name__}: {error}"[:500]
            if self._check and (why := why_unsafe()) is not None:
                self._events.send(
                    {"event": "unsafe", "module": module, "why": f"after importing it {why}"}
                )
                return False
        return True


def installed_imports(entry: Entry, root: str) -> list[str]:
    """Returns the installed modules that the entry and the project's files import, directly or
    indirectly, in import order.
    """
    start, folder = _start(entry, root)
    if start is None:
        return []
    search = [folder] + ([root] if root != folder else [])
    modules: dict[str, None] = {}
    pending, seen = [start], {start}
    while pending:
        path = pending.pop(0)
        for name in _imports(path):
            project_file = _project_file(name, path, search)
            if project_file is None:
                if not name.startswith(".") and _is_installed(name, search):
                    modules[name] = None
            elif project_file not in seen and len(seen) < _MAX_FILES:
                seen.add(project_file)
                pending.append(project_file)
    return list(modules)


def _start(entry: Entry, root: str) -> tuple[str | None, str]:
    """Returns the entry's file, and the folder where its imports are searched first."""
    if entry.kind == "module":
        parts = entry.target.partition(":")[0].split(".")
        # In the root, in `src`, or with the project's folder itself as the package.
        for folder in (root, os.path.join(root, "src"), os.path.dirname(root)):
            found = _file_of(folder, [*parts, "__main__"]) or _file_of(folder, parts)
            if found is not None:
                return found, folder
        return None, root
    return entry.target, os.path.dirname(os.path.realpath(entry.target))


def _imports(path: str) -> Iterator[str]:
    """Yields the modules that a file imports when it runs; `a` and `a.b` for `from a import b`."""
    try:
        if os.path.getsize(path) > _MAX_FILE_BYTES:
            return
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # The run reports the file's error.
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop(0)
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = "." * statement.level + (statement.module or "")
            if statement.module:
                yield base
            yield from (
                f"{base}.{alias.name}" if statement.module else base + alias.name
                for alias in statement.names
            )
        elif isinstance(statement, (ast.If, ast.Try, ast.With)) and not _for_type_checkers(
            statement
        ):
            # Imports in functions may never run; those in branches usually do.
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(statement, part, []):
                    pending += inner.body if isinstance(inner, ast.ExceptHandler) else [inner]


def _for_type_checkers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)


def _project_file(name: str, importer: str, search: list[str]) -> str | None:
    """Returns the project file that an import refers to, or None."""
    dots = len(name) - len(name.lstrip("."))
    parts = [part for part in name.split(".") if part]
    if dots:
        folder = os.path.dirname(importer)
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        return _file_of(folder, parts) or _file_of(folder, parts[:-1])
    for folder in search:
        # The last part may be a function in the module.
        if (found := _file_of(folder, parts) or _file_of(folder, parts[:-1])) is not None:
            return found
    return None


def _file_of(folder: str, parts: list[str]) -> str | None:
    if not parts:
        return None
    path = os.path.join(folder, *parts)
    for candidate in (path + ".py", os.path.join(path, "__init__.py")):
        if os.path.isfile(candidate):
            return candidate
    return None


def _is_installed(name: str, search: list[str]) -> bool:
    """Whether the module is an installed package, and no folder of the project shadows it.

    An editable install is elsewhere, and may be the project itself.
    """
    top = name.partition(".")[0]
    if any(
        os.path.exists(os.path.join(folder, end)) for folder in search for end in (top, top + ".py")
    ):
        return False
    try:
        found = importlib.util.find_spec(top)
        if found is None or not _from_packages(found.origin):
            return False
        if name == top:
            return True
        # Finding `a.b` would import its parents. That is left to the import itself, which comes
        # after the import of `a`, so that each one is checked.
        return "." in name and _submodule_exists(list(found.submodule_search_locations or []), name)
    except (ImportError, ValueError, AttributeError):
        return False


def _submodule_exists(folders: list[str], name: str) -> bool:
    parts = name.split(".")[1:]
    return any(_file_of(folder, parts) is not None for folder in folders)


def _from_packages(origin: str | None) -> bool:
    if origin is None:
        return False
    paths = sysconfig.get_paths()
    installed = {
        paths[key] for key in ("purelib", "platlib", "stdlib", "platstdlib") if key in paths
    }
    installed.update(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    return any(
        os.path.realpath(origin).startswith(os.path.realpath(folder) + os.sep)
        for folder in installed
    )
