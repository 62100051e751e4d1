"""What else is known of an exception: the advice that a person gets is chosen by it
(docs/recording.md, `failure.facts`).
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

_LONGEST_TEXT = 300
_MOST_CAUSES = 5
# How torch raises in the main thread what a worker of a DataLoader or a replica raised
# (torch._utils.ExceptionWrapper).
_ELSEWHERE = re.compile(r"^Caught \S+ (in .*)\.\nOriginal Traceback \(most recent call last\):\n")
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^ +File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def facts(error: BaseException, shown: Callable[[str], str]) -> dict[str, object]:
    """Everything is None, or empty, where it is not known. `shown` takes the machine's own folders
    from a text.
    """
    innermost = _innermost(error)
    if (elsewhere := raised_elsewhere(_text(error))) is not None:
        innermost = elsewhere[1][-1]
    file = error.filename if isinstance(error, OSError) else None
    return {
        # Where it was raised, be it the user's code or a library's.
        "raised_in": None
        if innermost is None
        else {"path": shown(_without_frozen(innermost[0])), "name": innermost[2]},
        "errno": errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None,
        "file": shown(os.fsdecode(file))[:_LONGEST_TEXT]
        if isinstance(file, (str, bytes))
        else None,
        "module": _module(error),
        "exit_code": _exit_code(error),
        "causes": [_name(cause) for cause in causes(error)],
    }


def causes(error: BaseException) -> list[BaseException]:
    """The exceptions behind this one, the nearest first."""
    found: list[BaseException] = []
    seen = {id(error)}
    current = behind(error)
    while current is not None and id(current) not in seen and len(found) < _MOST_CAUSES:
        seen.add(id(current))
        found.append(current)
        current = behind(current)
    return found


def behind(error: BaseException) -> BaseException | None:
    """The exception that a traceback would name before this one."""
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def raised_elsewhere(text: str) -> tuple[str, list[tuple[str, int, str]]] | None:
    """Of an exception that a worker of a DataLoader raised, or another thread: its own text, with
    where that was, and its frames, outermost first.
    """
    found = _ELSEWHERE.match(text)
    if found is None:
        return None
    last = text[text.rindex(_TRACEBACK) + len(_TRACEBACK) :]
    frames = [(path, int(line), name) for path, line, name in _FRAME.findall(last)]
    # The exception follows the frames, and is not indented.
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


def _innermost(error: BaseException) -> tuple[str, int, str] | None:
    traceback = error.__traceback__
    last = None
    while traceback is not None:
        last = traceback
        traceback = traceback.tb_next
    if last is None:
        return None
    code = last.tb_frame.f_code
    return code.co_filename, last.tb_lineno or 0, code.co_name


def _without_frozen(path: str) -> str:
    """Of a module that is built into Python (`<frozen os>`), the file that it was made from."""
    if path.startswith("<frozen ") and path.endswith(">"):
        return path[len("<frozen ") : -1].replace(".", "/") + ".py"
    return path


def _module(error: BaseException) -> dict[str, str | None] | None:
    """The module that an import or an attribute was looked for in, and the version of its
    package.
    """
    name: object = None
    if isinstance(error, ImportError):
        name = error.name
    elif isinstance(error, AttributeError):
        owner = getattr(error, "obj", None)  # Since Python 3.10.
        name = owner.__name__ if isinstance(owner, ModuleType) else None
    if not isinstance(name, str) or not name:
        return None
    return {"name": name[:_LONGEST_TEXT], "version": _version(name.partition(".")[0])}


def _version(package: str) -> str | None:
    """Of the distribution that installed a top-level package, or None: the project's own have
    none.
    """
    try:
        names = importlib.metadata.packages_distributions() if sys.version_info >= (3, 10) else {}
        for name in [*names.get(package, ()), package]:
            return importlib.metadata.version(name)[:_LONGEST_TEXT]
    except Exception:  # Metadata of a broken installation may be anything.
        return None
    return None


def _exit_code(error: BaseException) -> int | None:
    if not isinstance(error, SystemExit):
        return None
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0)
    return 1  # With a message, as Python does.


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def walk(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """The frames of an exception, outermost first."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        name = getattr(code, "co_qualname", code.co_name)  # co_qualname came with Python 3.11
        # A frame without line numbers gives None at run time, whatever the type says.
        yield code.co_filename, traceback.tb_lineno or 0, name
        traceback = traceback.tb_next
