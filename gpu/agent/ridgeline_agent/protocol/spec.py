"""The validated request for a run, an estimate or a probe (docs/agent-protocol.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ENTRY_KINDS = ("script", "module", "provider")
CLAIMS = ("cpu", "cuda")
SIDE_EFFECTS = ("allow", "redirect", "deny")
FINDERS = ("optimizer", "backward", "module", "provider")

# Upper bounds that no sensible run reaches. They protect from endless runs by a wrong
# configuration.
MAX_ITERATIONS = 10_000
MAX_SIGNALS = 2**31
MAX_SECONDS = 7 * 24 * 3600.0
MAX_OVERLAY_CHARACTERS = 8 * 2**20
MAX_RANKS = 100_000
MAX_VERSIONS = 8
MAX_EARLIER = 16


class SpecError(ValueError):
    """The request is invalid. The message names the key and the problem."""


@dataclass(frozen=True)
class Entry:
    """The program's entry point: `target` is a path, or a dotted name if `kind` is `module`."""

    kind: str
    target: str


# A probe runs no workspace code.
NO_ENTRY = Entry("none", "")


@dataclass(frozen=True)
class Iterations:
    """The number of iterations of each stage."""

    warmup: int = 2
    timed: int = 3
    # Upper limit for additional timed iterations while they are short or vary. None: no additional
    # ones.
    timed_at_most: int | None = None
    profiled: int = 2
    found_by: str | None = None
    # From an earlier run of the same program: signals before the first repetition, which count as
    # one iteration, and signals in each iteration.
    signals: tuple[int, int] | None = None


@dataclass(frozen=True)
class Limits:
    """Limits of a run. None means no limit."""

    seconds: float | None = None
    memory_bytes: int | None = None
    log_bytes: int = 1_000_000
    line_events: int = 2_000_000


@dataclass(frozen=True)
class Launcher:
    """The command that starts the ranks of a run (docs/ranks.md)."""

    command: tuple[str, ...]
    # The command that reaches another machine, empty if the launcher runs here; and the Python
    # there.
    remote: tuple[str, ...] = ()
    python: str = "python3"
    # Folders of this machine, and their paths as the ranks see them.
    paths: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """What differs between versions of a program that are compared."""

    out: str
    overlay: Mapping[str, str]
    batch_size: int | None


@dataclass(frozen=True)
class RunSpec:
    """One run. Paths are absolute."""

    id: int
    out: str
    root: str
    entry: Entry
    cwd: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user_code: tuple[str, ...] = ()
    not_user_code: tuple[str, ...] = ()
    user_packages: tuple[str, ...] = ()
    device: str = "auto"
    iterations: Iterations = field(default_factory=Iterations)
    # Recordings of earlier runs of the same program, whose timed iterations are included.
    earlier: tuple[str, ...] = ()
    batch_size: int | None = None
    eager: bool = False
    # File contents by path relative to the root.
    overlay: Mapping[str, str] = field(default_factory=dict)
    # Estimates only: the device that tensors claim to be on, and the recorded batches of a run.
    estimate: bool = False
    claim: str = "cpu"
    batches: str | None = None
    # Estimates and probes: allow running where the system cannot sandbox them.
    without_sandbox: bool = False
    # Run at low CPU and I/O priority, because nobody is waiting for the result.
    low_priority: bool = False
    # Probes only: the file that lists what to measure. Probes have no program.
    probe: str | None = None
    # Runs that record losses and gradients instead of times: the number of optimizer steps.
    trajectory: int | None = None
    # Runs with several ranks: the launcher. In a rank's own request it is None, and `rank` is set.
    launcher: Launcher | None = None
    rank: int | None = None
    # Runs that compare versions: the versions, and the number of iterations per turn.
    versions: tuple[Version, ...] = ()
    turn: int = 1
    # What happens to the program's writes (side_effects/redirect.py), and the folders whose writes
    # always reach the disk.
    side_effects: str = "allow"
    keep_writes: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @staticmethod
    def from_json(request: object) -> RunSpec:
        """Parses a `run`, `estimate` or `probe` request. Raises SpecError if it is invalid."""
        keys = _object(request, "the request")
        root = _text(keys, "root")
        is_probe = keys.get("op") == "probe"
        return RunSpec(
            id=_whole(keys, "id", 0, 2**53),
            out=_text(keys, "out"),
            root=root,
            entry=NO_ENTRY if is_probe else entry_from_json(keys.get("entry")),
            cwd=_text(keys, "cwd", root),
            args=_texts(keys, "args"),
            env=_environment(keys),
            user_code=_texts(keys, "user_code") or (root,),
            not_user_code=_texts(keys, "not_user_code"),
            user_packages=_texts(keys, "user_packages"),
            device=_device(keys),
            iterations=_iterations(keys),
            earlier=_earlier(keys),
            batch_size=_optional_whole(keys, "batch_size", 1, 2**31),
            eager=_flag(keys, "eager"),
            overlay=_overlay(keys),
            estimate=keys.get("op") == "estimate",
            claim=_claim(keys),
            low_priority=_flag(keys, "low_priority"),
            batches=None if keys.get("batches") is None else _text(keys, "batches"),
            without_sandbox=_flag(keys, "without_sandbox"),
            probe=_text(keys, "request") if is_probe else None,
            trajectory=_optional_whole(keys, "trajectory", 1, MAX_ITERATIONS),
            launcher=_launcher(keys),
            rank=_optional_whole(keys, "rank", 0, MAX_RANKS),
            versions=_versions(keys),
            turn=_whole(keys, "turn", 1, MAX_ITERATIONS, 1),
            side_effects=_side_effects(keys),
            keep_writes=_texts(keys, "keep_writes"),
            limits=_limits(keys),
        )


def entry_from_json(value: object) -> Entry:
    """Parses the entry of a `run` or `prepare` request."""
    keys = _object(value, "entry")
    kind = _text(keys, "kind", inside="entry.")
    if kind not in ENTRY_KINDS:
        raise SpecError(f"entry.kind is {kind!r}; it must be one of {', '.join(ENTRY_KINDS)}")
    return Entry(kind, _text(keys, "name" if kind == "module" else "path", inside="entry."))


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(f"{name} must be an object")
    return value


def _text(keys: Mapping[str, Any], key: str, default: str | None = None, inside: str = "") -> str:
    value = keys.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not value:
        raise SpecError(f"{inside}{key} must be a non-empty string")
    return _checked(value, inside + key)


def _texts(keys: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = keys.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SpecError(f"{key} must be a list of strings")
    return tuple(_checked(item, key) for item in value)


def _checked(text: str, key: str) -> str:
    """Returns the text if the operating system accepts it as a path, an argument or a variable."""
    if "\0" in text:
        raise SpecError(f"{key} contains a NUL character")
    try:
        # Python itself uses "surrogateescape" for file names that are not UTF-8.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise SpecError(f"{key} contains a lone surrogate") from None
    return text


def _environment(keys: Mapping[str, Any]) -> dict[str, str]:
    value = keys.get("env")
    if value is None:
        return {}
    variables = _object(value, "env")
    for name, text in variables.items():
        if not name or "=" in name or not isinstance(text, str):
            raise SpecError(f"env: {name} is not a variable with a string value")
        _checked(name, "env")
        _checked(text, "env")
    return dict(variables)


def _overlay(keys: Mapping[str, Any]) -> dict[str, str]:
    value = keys.get("overlay")
    if value is None:
        return {}
    texts = _object(value, "overlay")
    for path, text in texts.items():
        if not path or os.path.isabs(path) or not isinstance(text, str):
            raise SpecError(f"overlay: {path} is not a relative path with a string value")
        _checked(path, "overlay")
    if sum(map(len, texts.values())) > MAX_OVERLAY_CHARACTERS:
        raise SpecError(f"overlay has more than {MAX_OVERLAY_CHARACTERS} characters")
    return dict(texts)


def _whole(
    keys: Mapping[str, Any],
    key: str,
    minimum: int,
    maximum: int,
    default: int | None = None,
    inside: str = "",
) -> int:
    value = keys.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise SpecError(f"{inside}{key} must be a whole number from {minimum} to {maximum}")
    return value


def _optional_whole(
    keys: Mapping[str, Any], key: str, minimum: int, maximum: int, inside: str = ""
) -> int | None:
    return None if keys.get(key) is None else _whole(keys, key, minimum, maximum, inside=inside)


def _flag(keys: Mapping[str, Any], key: str) -> bool:
    value = keys.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise SpecError(f"{key} must be true or false")
    return value


def _device(keys: Mapping[str, Any]) -> str:
    device = _text(keys, "device", "auto")
    index = device[len("cuda:") :] if device.startswith("cuda:") else "0"
    if device not in ("auto", "cpu", "cuda") and not device.startswith("cuda:"):
        raise SpecError(f"device is {device!r}; it must be auto, cpu, cuda or cuda:N")
    if not (index.isascii() and index.isdigit() and len(index) <= 4):
        raise SpecError(f"device is {device}; 'cuda:' must be followed by a GPU index")
    return device


def _launcher(keys: Mapping[str, Any]) -> Launcher | None:
    value = keys.get("launcher")
    if value is None:
        return None
    part = _object(value, "launcher")
    command, remote = _texts(part, "command"), _texts(part, "remote")
    if not command and not remote:
        raise SpecError("launcher.command must name a program")
    paths = _object(part.get("paths") or {}, "launcher.paths")
    for here, there in paths.items():
        if not os.path.isabs(here) or not isinstance(there, str) or not there.startswith("/"):
            raise SpecError(f"launcher.paths: {here} and its remote path must be absolute paths")
        _checked(here, "launcher.paths")
        _checked(there, "launcher.paths")
    python = _text(part, "python", Launcher.python, "launcher.")
    return Launcher(command, remote, python, dict(paths))


def _versions(keys: Mapping[str, Any]) -> tuple[Version, ...]:
    value = keys.get("versions")
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_VERSIONS:
        raise SpecError(f"versions must be a list of at most {MAX_VERSIONS}")
    if value and (keys.get("op") != "run" or keys.get("launcher") is not None):
        raise SpecError("versions are for runs without a launcher")
    versions = []
    for one in value:
        part = _object(one, "versions")
        batch_size = _optional_whole(part, "batch_size", 1, 2**31, "versions.")
        versions.append(Version(_text(part, "out", inside="versions."), _overlay(part), batch_size))
    return tuple(versions)


def _side_effects(keys: Mapping[str, Any]) -> str:
    mode = _text(keys, "side_effects", "allow")
    if mode not in SIDE_EFFECTS:
        raise SpecError(f"side_effects is {mode!r}; it must be one of {', '.join(SIDE_EFFECTS)}")
    return mode


def _claim(keys: Mapping[str, Any]) -> str:
    claim = _text(keys, "claim", "cpu")
    if claim not in CLAIMS:
        raise SpecError(f"claim is {claim!r}; it must be one of {', '.join(CLAIMS)}")
    return claim


def _iterations(keys: Mapping[str, Any]) -> Iterations:
    value = keys.get("iterations")
    if value is None:
        return Iterations()
    part = _object(value, "iterations")
    found_by = part.get("found_by")
    if found_by is not None and found_by not in FINDERS:
        raise SpecError(f"iterations.found_by must be one of {', '.join(FINDERS)}, or null")
    iterations = Iterations(
        warmup=_whole(part, "warmup", 0, MAX_ITERATIONS, Iterations.warmup, "iterations."),
        timed=_whole(part, "timed", 0, MAX_ITERATIONS, Iterations.timed, "iterations."),
        timed_at_most=_optional_whole(part, "timed_at_most", 1, MAX_ITERATIONS, "iterations."),
        profiled=_whole(part, "profiled", 0, MAX_ITERATIONS, Iterations.profiled, "iterations."),
        found_by=found_by,
        signals=_signals(part),
    )
    if iterations.timed == iterations.profiled == 0:
        raise SpecError("iterations.timed and iterations.profiled cannot both be 0")
    return iterations


def _signals(iterations: Mapping[str, Any]) -> tuple[int, int] | None:
    value = iterations.get("signals")
    if value is None:
        return None
    part = _object(value, "iterations.signals")
    inside = "iterations.signals."
    return (
        _whole(part, "first", 0, MAX_SIGNALS, 0, inside),
        _whole(part, "every", 1, MAX_SIGNALS, 1, inside),
    )


def _earlier(keys: Mapping[str, Any]) -> tuple[str, ...]:
    folders = _texts(keys, "earlier")
    if len(folders) > MAX_EARLIER:
        raise SpecError(f"earlier must name at most {MAX_EARLIER} recordings")
    return folders


def _limits(keys: Mapping[str, Any]) -> Limits:
    value = keys.get("limits")
    if value is None:
        return Limits()
    part = _object(value, "limits")
    seconds = part.get("seconds")
    if seconds is not None:
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not 0 < seconds <= MAX_SECONDS:
            raise SpecError(f"limits.seconds must be a number above 0, at most {MAX_SECONDS:.0f}")
        seconds = float(seconds)
    return Limits(
        seconds=seconds,
        memory_bytes=_optional_whole(part, "memory_bytes", 1, 2**62, "limits."),
        log_bytes=_whole(part, "log_bytes", 0, 2**31, Limits.log_bytes, "limits."),
        line_events=_whole(part, "line_events", 0, 2**31, Limits.line_events, "limits."),
    )
