"""Additional facts about an exception, which determine the advice to the user (docs/recording.md,
`failure.facts`).
"""

from __future__ import annotations

import ast
import errno
import importlib.machinery
import importlib.metadata
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from types import ModuleType
from typing import Any

_MAX_TEXT_LENGTH = 300
_MAX_CAUSES = 5
# Format in which torch re-raises an exception from a DataLoader worker or a replica in the main
# thread (torch._utils.ExceptionWrapper).
_ELSEWHERE = re.compile(r"^Caught \S+ (in .*)\.\nOriginal Traceback \(most recent call last\):\n")
_TRACEBACK = "Traceback (most recent call last):\n"
# The message of `numpy.loadtxt` and `numpy.genfromtxt`, which have no other fact.
_NOT_FOUND = re.compile(r"^(\S*[/.]\S*) not found\.$")
_FRAME = re.compile(r'^ +File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def facts(error: BaseException, shown: Callable[[str], str]) -> dict[str, object]:
    """Returns the facts. Unknown ones are None or empty. `shown` removes the machine's folders from
    a text.
    """
    # A module's `__getattr__` raises for the code that uses a name it does not have.
    raised_for_caller = "__getattr__" if isinstance(error, AttributeError) else None
    innermost = _innermost(error, raised_for_caller)
    if (elsewhere := raised_elsewhere(_text(error))) is not None:
        innermost = elsewhere[1][-1]
    file = error.filename if isinstance(error, OSError) else None
    if file is None and isinstance(error, FileNotFoundError):
        named = _NOT_FOUND.match(_text(error))
        file = named and named.group(1)
    if file is None and isinstance(error, AssertionError):
        file = asserted_path(error)
    return {
        # Where it was raised, in user code or a library.
        "raised_in": None
        if innermost is None
        else {"path": shown(_without_frozen(innermost[0])), "name": innermost[2]},
        "errno": errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None,
        "file": shown(os.fsdecode(file))[:_MAX_TEXT_LENGTH]
        if isinstance(file, (str, bytes))
        else None,
        "module": _module(error),
        "exit_code": _exit_code(error),
        "causes": [_name(cause) for cause in causes(error)],
    }


def causes(error: BaseException) -> list[BaseException]:
    """Returns the causes of this exception, nearest first."""
    found: list[BaseException] = []
    seen = {id(error)}
    current = cause_of(error)
    while current is not None and id(current) not in seen and len(found) < _MAX_CAUSES:
        seen.add(id(current))
        found.append(current)
        current = cause_of(current)
    return found


def cause_of(error: BaseException) -> BaseException | None:
    """Returns the exception that a traceback would print before this one."""
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def asserted_path(error: AssertionError) -> str | None:
    """Returns the path whose existence failed to be asserted: `assert os.path.exists(path)`."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return None
    frame = traceback.tb_frame
    line = linecache.getline(frame.f_code.co_filename, traceback.tb_lineno or 0, frame.f_globals)
    try:
        statements = ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    call = statements[0].test if statements and isinstance(statements[0], ast.Assert) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return None
    if call.func.attr in ("exists", "isfile", "isdir") and len(call.args) == 1:
        path = call.args[0]
    elif call.func.attr in ("exists", "is_file", "is_dir") and not call.args:
        path = call.func.value
    else:
        return None
    value = _value(path, {**frame.f_globals, **frame.f_locals})
    return os.fspath(value) if isinstance(value, (str, PurePath)) else None


def _value(expression: ast.expr, names: Mapping[str, object]) -> object:
    """Returns the value of a constant, a variable or an object's attribute, without running code
    of the program.
    """
    if isinstance(expression, ast.Constant):
        return expression.value
    if isinstance(expression, ast.Name):
        return names.get(expression.id)
    if isinstance(expression, ast.Attribute):
        owner = _value(expression.value, names)
        attributes = getattr(owner, "__dict__", None)
        return attributes.get(expression.attr) if isinstance(attributes, dict) else None
    return None


def raised_elsewhere(text: str) -> tuple[str, list[tuple[str, int, str]]] | None:
    """For an exception from a DataLoader worker or another thread: returns its own text with that
    location, and its frames, outermost first.
    """
    found = _ELSEWHERE.match(text)
    if found is None:
        return None
    last = text[text.rindex(_TRACEBACK) + len(_TRACEBACK) :]
    frames = [(path, int(line), name) for path, line, name in _FRAME.findall(last)]
    # The exception follows the frames and is not indented.
    lines = last.split("\n")
    at = next((index for index, line in enumerate(lines) if line and not line[0].isspace()), None)
    if at is None or not frames:
        return None
    own = "\n".join(lines[at:]).rstrip()
    return f"{own.partition(': ')[2] or own} ({found.group(1)})", frames


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # The user's own __str__ may fail.
        return ""


def _innermost(error: BaseException, except_for: str | None) -> tuple[str, int, str] | None:
    """Returns the innermost frame, except of functions with this name."""
    traceback = error.__traceback__
    last = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name != except_for:
            last = traceback
        traceback = traceback.tb_next
    if last is None:
        return None
    code = last.tb_frame.f_code
    return code.co_filename, last.tb_lineno or 0, code.co_name


def _without_frozen(path: str) -> str:
    """Returns the source file of a module that is frozen into Python (`<frozen os>`)."""
    if path.startswith("<frozen ") and path.endswith(">"):
        return path[len("<frozen ") : -1].replace(".", "/") + ".py"
    return path


def _module(error: BaseException) -> dict[str, str | None] | None:
    """Returns the module whose import or attribute is missing, the version of its package, and the
    module of that package that was used as an attribute without an import.
    """
    name: object = None
    not_imported = None
    if isinstance(error, ImportError):
        name = error.name
    elif isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)  # Since Python 3.10.
        if isinstance(owner, type):
            name = owner.__module__
        else:
            name = owner.__name__ if isinstance(owner, ModuleType) else None
            not_imported = _not_imported(owner, error.name) if isinstance(name, str) else None
    if not isinstance(name, str) or not name:
        return None
    return {
        "name": name[:_MAX_TEXT_LENGTH],
        "version": _version(name.partition(".")[0]),
        "not_imported": not_imported,
    }


def _not_imported(package: Any, attribute: object) -> str | None:
    """Returns the full name of a package's module that nothing has imported."""
    folders = getattr(package, "__path__", None)
    if folders is None or not isinstance(attribute, str):
        return None
    name = f"{package.__name__}.{attribute}"
    try:
        found = importlib.machinery.PathFinder.find_spec(name, list(folders))
    except Exception:  # A package may give its module any path.
        return None
    return None if found is None else name[:_MAX_TEXT_LENGTH]


def _version(package: str) -> str | None:
    """Returns the version of the distribution that installed a package, or None, as for the
    project's own packages.
    """
    try:
        names = importlib.metadata.packages_distributions() if sys.version_info >= (3, 10) else {}
        for name in [*names.get(package, ()), package]:
            return importlib.metadata.version(name)[:_MAX_TEXT_LENGTH]
    except Exception:  # Metadata of a broken installation may be anything.
        return None
    return None


def _exit_code(error: BaseException) -> int | None:
    if not isinstance(error, SystemExit):
        return None
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0)
    return 1  # With a message, as in Python.


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def walk(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Yields the frames of an exception, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # co_qualname came with Python 3.11
        # A frame without line numbers has None at run time, despite its type.
        yield code.co_filename, traceback.tb_lineno or 0, name
        traceback = traceback.tb_next
