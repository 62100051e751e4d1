"""Describes an exception of the user's program for the manifest (docs/recording.md, `failure`)."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable

from .facts import cause_of, causes, facts, raised_elsewhere, walk

# Defined by the recording's format.
MAX_MESSAGE_CHARS = 2000
# A RecursionError has a thousand frames, nearly all of them the same.
MAX_FRAMES = 200

# (absolute file name of code) -> index into the manifest's `files`, or None if it is not user code.
FileIndex = Callable[[str], "int | None"]


class EntryError(Exception):
    """The program cannot be started. `path` and `line` locate the mistake, if known."""

    def __init__(self, message: str, path: str | None = None, line: int = 1) -> None:
        super().__init__(message)
        self.path = path
        self.line = line


def describe_failure(error: BaseException, root: str, file_index: FileIndex) -> dict[str, object]:
    """Returns the manifest's `failure` for an exception of the program.

    `frames` are the user's frames, outermost first. `message` contains no absolute path of this
    machine.
    """
    message, requested = _requested_bytes(error)
    frames = _user_frames(error, file_index)
    kind = "exception"
    if (elsewhere := raised_elsewhere(message)) is not None:
        # The location where it was raised, not where the batch was requested.
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
        "frames": frames[:MAX_FRAMES] if len(frames) <= MAX_FRAMES else _ends(frames),
        "facts": facts(error, lambda text: shorten(without_absolute_paths(text, root), 300)),
        "requested_bytes": requested,
        # See out_of_memory.
        "memory": None,
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the CPU or a GPU."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError and torch.cuda.OutOfMemoryError, by name, so that this file does not
    # need torch.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(text in _text(error) for text in _NO_MEMORY)


def out_of_memory_in(error: BaseException) -> BaseException | None:
    """Returns the failed allocation in an exception's chain of explicit causes.

    An exception that was raised while handling another is a different failure, because the program
    had caught the first.
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
    """Returns the requested bytes from the message of CUDA's allocator.

    The message is rounded to two decimals, so the result is accurate to half a percent.
    """
    return bytes_in(_CUDA_REQUEST, message)


def bytes_in(pattern: re.Pattern[str], text: str) -> int | None:
    """Returns the bytes in the text; the pattern's groups are a number and a unit."""
    found = pattern.search(text)
    return None if found is None else round(float(found.group(1)) * _UNITS[found.group(2)])


def without_absolute_paths(text: str, root: str) -> str:
    """Makes the project's paths relative to its root, and those in hidden folders of the home
    folder (`~/.cache`), which programs name, relative to it. Shortens other absolute paths to their
    last part.

    A recording may be shared and must not contain information about the machine.
    """
    for prefix in _path_prefixes(root):
        text = text.replace(prefix, "")
    home = os.path.expanduser("~")
    if os.path.isabs(home) and len(home) > 1:
        text = text.replace(os.path.join(home, "."), os.path.join("~", "."))
    return _ABSOLUTE_PATH.sub(lambda path: "…/" + re.split(r"[/\\]", path.group(0))[-1], text)


def without_escapes(text: str) -> str:
    """Removes terminal escape sequences."""
    return _ESCAPES.sub("", text)


def shorten(text: str, most: int = MAX_MESSAGE_CHARS) -> str:
    """Truncates the text to `most` characters, and replaces what JSON cannot represent."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= most else text[: most - 1] + "…"


# Terminal escape sequences: CSI, OSC, and those of two characters.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")

# An absolute path with at least two parts: a single "/" or "and/or" is prose.
_ABSOLUTE_PATH = re.compile(r"(?<![\w./\\…:~-])(?:[A-Za-z]:[\\/]|/)(?:[\w.@+~-]+[\\/])+[\w.@+~-]+")

# Messages of out-of-memory errors that are not OutOfMemoryError: of the CPU's allocator, CUDA's
# libraries, and pinned memory.
_NO_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_CPU_REQUEST = re.compile(r"you tried to allocate (\d+) bytes")
# The second is the message of cudaMallocAsync.
_CUDA_REQUEST = re.compile(
    r"(?:Tried to allocate|Requested +:) (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB)"
)


def _requested_bytes(error: BaseException) -> tuple[str, int | None]:
    """Returns the exception's text, and the bytes that could not be allocated."""
    text, cause = _text(error), out_of_memory_in(error)
    if cause is None:
        return text, None
    if cpu := _CPU_REQUEST.search(_text(cause)):
        return text, int(cpu.group(1))
    return text, cuda_request(_text(cause))


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # The user's own __str__ may fail. Then only the type is reported.
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
    """Returns the exception's causes, in the order of a traceback."""
    return "".join(f"\ncaused by {_type_name(one)}: {_text(one)}" for one in causes(error))


def _user_frames(error: BaseException, file_index: FileIndex) -> list[dict[str, object]]:
    """Returns the user's frames of the exception, or of the nearest cause that has any.

    A library may raise in its own thread or worker, and then only the cause has a user's line.
    """
    frames = _in_project(walk(error), file_index)
    if isinstance(error, SystemExit) and (cause := cause_of(error)) is not None:
        # A framework that reports an error and exits (Hydra): the exception passed through the
        # frames below. If the program itself exits, that line is the location.
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
    """Returns the line that could not be parsed, in the script or an import. No frame has it."""
    if not isinstance(error.filename, str):
        return []
    file = file_index(os.path.abspath(error.filename))
    return [] if file is None else [{"file": file, "line": error.lineno or 1, "name": "<module>"}]


def _entry_frame(error: EntryError, file_index: FileIndex) -> list[dict[str, object]]:
    file = None if error.path is None else file_index(error.path)
    return [] if file is None else [{"file": file, "line": error.line, "name": "<module>"}]


def _ends(frames: list[dict[str, object]]) -> list[dict[str, object]]:
    return frames[: MAX_FRAMES // 2] + frames[-MAX_FRAMES // 2 :]


def _path_prefixes(root: str) -> list[str]:
    """Returns folders whose names can be removed without a loss: the project's, the libraries' and
    Python's. Longest first.
    """
    folders = {root, os.path.realpath(root), sys.prefix, sys.base_prefix}
    folders.update(path for path in sysconfig.get_paths().values() if path)
    if user_site := site.getusersitepackages():
        folders.add(user_site)
    # Of another environment, which this one adds to the path.
    packages = ("site-packages", "dist-packages")
    folders.update(path for path in list(sys.path) if path.rstrip("/\\").endswith(packages))
    prefixes = [folder.rstrip("/\\") + os.sep for folder in folders if len(folder) > 3]
    return sorted(prefixes, key=len, reverse=True)
