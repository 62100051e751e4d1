"""How an exception of the user's program is written into the manifest (docs/recording.md,
`failure`).
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable

from .facts import behind, causes, facts, raised_elsewhere, walk

# The recording's format says so.
LONGEST_MESSAGE = 2000
# A RecursionError has a thousand frames, nearly all of them alike.
MOST_FRAMES = 200

# (absolute file name of code) -> index into the manifest's `files`, or None where it is not user
# code.
FileIndex = Callable[[str], "int | None"]


class EntryError(Exception):
    """The program cannot be begun. `path` and `line` say where the mistake stands, if anywhere."""

    def __init__(self, message: str, path: str | None = None, line: int = 1) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


def describe_failure(error: BaseException, root: str, file_index: FileIndex) -> dict[str, object]:
    """The manifest's `failure` for what the program raised.

    `frames` are the user's frames, outermost first; `message` names no absolute path of this
    machine.
    """
    message, requested = _memory_asked(error)
    frames = _user_frames(error, file_index)
    kind = "exception"
    if (elsewhere := raised_elsewhere(message)) is not None:
        # Where it was raised, and not where a batch was asked for.
        message = elsewhere[0]
        frames += _in_project(elsewhere[1], file_index)
    if isinstance(error, SyntaxError):
        kind = "syntax"
        frames = frames + _syntax_frame(error, file_index)
        message = error.msg or "invalid syntax"
    elif isinstance(error, SystemExit):
        kind = "exit"
        message = _exit_message(error)
    elif isinstance(error, EntryError):
        frames = _entry_frame(error, file_index)
    elif out_of_memory_in(error) is not None:
        kind = "memory"
    return {
        "type": _type_name(error),
        "message": shorten(without_absolute_paths(without_escapes(message + _cause(error)), root)),
        "kind": kind,
        "frames": frames[:MOST_FRAMES] if len(frames) <= MOST_FRAMES else _ends(frames),
        "facts": facts(error, lambda text: shorten(without_absolute_paths(text, root), 300)),
        "requested_bytes": requested,
        # See out_of_memory.
        "memory": None,
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the CPU or on a GPU."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError and torch.cuda.OutOfMemoryError, by name, so that this file needs no
    # torch.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(text in _text(error) for text in _NO_MEMORY)


def out_of_memory_in(error: BaseException) -> BaseException | None:
    """The failed allocation among an exception and what it was raised from.

    What failed while one was handled is another failure: the program had caught the first.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if is_out_of_memory(current):
            return current
        seen.add(id(current))
        current = current.__cause__
    return None


def cuda_request(message: str) -> int | None:
    """How many bytes the message of CUDA's allocator says were asked for.

    It rounds to two places, so this is what was asked for to within half a percent.
    """
    return bytes_in(_CUDA_REQUEST, message)


def bytes_in(pattern: re.Pattern[str], text: str) -> int | None:
    """The bytes that the groups of the pattern, a number and a unit, find in the text."""
    found = pattern.search(text)
    return None if found is None else round(float(found.group(1)) * _UNITS[found.group(2)])


def without_absolute_paths(text: str, root: str) -> str:
    """The text with the project's paths relative to its root, and other absolute paths shortened
    to their end.

    A recording may be shown to others, and must not tell them about the machine.
    """
    for prefix in _path_prefixes(root):
        text = text.replace(prefix, "")
    return _ABSOLUTE_PATH.sub(lambda path: "…/" + re.split(r"[/\\]", path.group(0))[-1], text)


def without_escapes(text: str) -> str:
    """The text without what colours it in a terminal."""
    return _ESCAPES.sub("", text)


def shorten(text: str, most: int = LONGEST_MESSAGE) -> str:
    """At most `most` characters of the text, and none that JSON could not carry."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= most else text[: most - 1] + "…"


# Escape sequences of terminals: CSI, OSC, and those of two characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")

# An absolute path of at least two parts: a lone "/" or "and/or" is prose.
_ABSOLUTE_PATH = re.compile(r"(?<![\w./\\…:-])(?:[A-Za-z]:[\\/]|/)(?:[\w.@+~-]+[\\/])+[\w.@+~-]+")

# What is no OutOfMemoryError although memory ran out: the CPU's allocator, and those of CUDA's
# libraries and of page-locked memory.
_NO_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_CPU_REQUEST = re.compile(r"you tried to allocate (\d+) bytes")
# The second is cudaMallocAsync's.
_CUDA_REQUEST = re.compile(
    r"(?:Tried to allocate|Requested +:) (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB)"
)


def _memory_asked(error: BaseException) -> tuple[str, int | None]:
    """The exception's own text, and how many bytes could not be allocated."""
    text, cause = _text(error), out_of_memory_in(error)
    if cause is None:
        return text, None
    if cpu := _CPU_REQUEST.search(_text(cause)):
        return text, int(cpu.group(1))
    return text, cuda_request(_text(cause))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # The user's own __str__ may fail, and then the type has to be enough.
        return ""


def _type_name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__", __name__):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _exit_message(error: SystemExit) -> str:
    if error.code is None or isinstance(error.code, int):
        return f"the program exited with code {int(error.code or 0)}"
    return f"the program exited with the message: {_text(error)}"


def _cause(error: BaseException) -> str:
    """The exceptions behind this one, in the order in which a traceback would name them."""
    return "".join(f"\ncaused by {_type_name(one)}: {_text(one)}" for one in causes(error))


def _user_frames(error: BaseException, file_index: FileIndex) -> list[dict[str, object]]:
    """The user's frames of the exception, or of the nearest one behind it that has any.

    A library may raise in a thread or a worker of its own, and then only the cause stood on a
    user's line.
    """
    frames = _in_project(walk(error), file_index)
    if isinstance(error, SystemExit) and (cause := behind(error)) is not None:
        # A framework that says what went wrong and exits (Hydra): the exception went through the
        # frames below. Where the program itself exits, that line is the place.
        raised_in = [path for path, _, _ in walk(error)][-1:]
        if not any(file_index(path) is not None for path in raised_in):
            return frames + _in_project(walk(cause), file_index)
    for one in [] if frames else causes(error):
        frames = _in_project(walk(one), file_index)
        if frames:
            break
    return frames


def _in_project(
    frames: Iterable[tuple[str, int, str]], file_index: FileIndex
) -> list[dict[str, object]]:
    indexed = ((file_index(path), line, name) for path, line, name in frames)
    return [
        {"file": file, "line": line, "name": name}
        for file, line, name in indexed
        if file is not None
    ]


def _syntax_frame(error: SyntaxError, file_index: FileIndex) -> list[dict[str, object]]:
    """The line that could not be parsed: no frame stands there, whether it is the script's or an
    import's.
    """
    if not isinstance(error.filename, str):
        return []
    file = file_index(os.path.abspath(error.filename))
    return [] if file is None else [{"file": file, "line": error.lineno or 1, "name": "<module>"}]


def _entry_frame(error: EntryError, file_index: FileIndex) -> list[dict[str, object]]:
    file = None if error.path is None else file_index(error.path)
    return [] if file is None else [{"file": file, "line": error.line, "name": "<module>"}]


def _ends(frames: list[dict[str, object]]) -> list[dict[str, object]]:
    return frames[: MOST_FRAMES // 2] + frames[-MOST_FRAMES // 2 :]


def _path_prefixes(root: str) -> list[str]:
    """Folders whose names may go without a loss: the project's, the libraries', Python's. Longest
    first.
    """
    folders = {root, os.path.realpath(root), sys.prefix, sys.base_prefix}
    folders.update(path for path in sysconfig.get_paths().values() if path)
    if user_site := site.getusersitepackages():
        folders.add(user_site)
    prefixes = [folder.rstrip("/\\") + os.sep for folder in folders if len(folder) > 3]
    return sorted(prefixes, key=len, reverse=True)
