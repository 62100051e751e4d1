"""Keeps files that a measured run creates, changes or removes off the user's disk.

The program gets its own view of the file system (system/mounts.py): everything that it could write
to is covered by an overlay, whose upper layer is a temporary folder. The program and its children
read back what they wrote, whatever functions they use, because the kernel does this. Writes to
caches (persistent_folders.py) and to the run's own recording reach the disk. At the end, the
process that watches the run lists and removes the contents of the temporary folder
(discarded_writes.py).

This file has more than 500 lines because planning and mounting a view share the same tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..system import mounts
from ..system.mounts import Mount
from .patches import folder_renames
from .persistent_folders import is_within, kept_folders

# Read and removed by the process that watches the run. Ranks on other machines write theirs into
# the same folder.
RECORD_PREFIX = "redirected-"
FOLDER_PREFIX = "ridgeline-run-"
LOCK = "lock"

# The kernel's own folders, and those of services and devices, whose sockets must stay reachable.
_NEVER_COVERED = ("/proc", "/sys", "/dev", "/run")
_VIRTUAL_FILE_SYSTEMS = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
        "rpc_pipefs", "securityfs", "selinuxfs", "sysfs", "tracefs",
    )
)  # fmt: skip
# An environment variable that tells child processes that they are already redirected.
_REDIRECTED_IN = "RIDGELINE_HELD_IN"
# Limits for a folder that is covered part by part.
_MAX_PARTS = 500
_MAX_PLACES = 2000
_MAX_DEPTH = 6
_MAX_SOCKETS = 256
_SCANNED_DEPTH = 2
_LOCK_DESCRIPTOR = 200
_MIN_TEMPORARY_BYTES = 64 * 2**20


@dataclass
class ActiveRedirection:
    """The active redirection, as written to the record for the end of the run."""

    mode: str
    # "kernel"; or "landlock" or "python" if mounts are not allowed (see `_rewrite`).
    held_by: str = "kernel"
    # The temporary folders.
    folders: list[str] = field(default_factory=list)
    # Pairs of covered folders and their upper layers.
    layers: list[tuple[str, str]] = field(default_factory=list)
    # Caches that were created for the run, and are removed if they stay empty.
    made: list[str] = field(default_factory=list)
    # Places that could not be covered, and why. Writes to them reach the disk.
    open: list[str] = field(default_factory=list)

    def write(self, out: str) -> None:
        """Writes the record for discarded_writes.take."""
        path = os.path.join(out, f"{RECORD_PREFIX}{os.urandom(8).hex()}.json")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(vars(self), file)


def refusal() -> str:
    """Returns why this system does not allow a process its own mounts; "" if it does. Tries it in a
    child, because a process with only half of the setup could not continue. A process that forks
    runs calls this once for all of them.
    """
    global _refusal
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no mount namespaces"
    if _refusal is None:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            why = "unknown"
            try:
                mounts.enter_mount_namespace()
                mounts.mount_tmpfs("/tmp", _MIN_TEMPORARY_BYTES)
                why = ""
            except OSError as error:
                why = str(error)
            finally:
                os.write(writing, why.encode()[:500])
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            _refusal = pipe.read().decode("utf-8", "replace")
        os.waitpid(child, 0)
    return _refusal


def enter_namespace() -> bool:
    """Enters a mount namespace, which requires a process with one thread: where a process cannot be
    forked for the run, call it before torch is imported. Returns False if the system does not allow
    it.
    """
    global _entered
    if _entered is None:
        why = refusal()
        try:
            _entered = _Namespace(not why and mounts.enter_mount_namespace(), why)
        except OSError as error:
            _entered = _Namespace(False, str(error))
    return not _entered.refusal


@dataclass(frozen=True)
class _Namespace:
    is_of_user: bool
    # Why there is none.
    refusal: str


_refusal: str | None = None
# This process's namespace. The zygote never has one; its children do.
_entered: _Namespace | None = None


def hold(mode: str, root: str, cwd: str, out: str, keep: Iterable[str]) -> ActiveRedirection:
    """From now on, writes of this process and its children are discarded (`redirect`) or denied
    (`deny`). `out` stays writable. All existing threads must have been started after
    `enter_namespace`.
    """
    held = ActiveRedirection(mode)
    kept = kept_folders(keep, root, os.environ)
    if not is_usable(root, cwd) or _entered is None:
        _rewrite(held, out, kept)
        os.environ[_REDIRECTED_IN] = _this_namespace()
        held.write(out)
        return held
    view = _View(held, _entered.is_of_user, root, cwd)
    view.cover([os.path.realpath(out), *(path for path in kept if os.path.exists(path))])
    # Relative paths would still resolve in the uncovered folder.
    os.chdir(cwd if os.path.isdir(cwd) else root)
    if _entered.is_of_user:
        mounts.drop_capabilities()
        folder_renames.install()
    os.environ[_REDIRECTED_IN] = _this_namespace()
    held.write(out)
    return held


def is_usable(root: str, cwd: str) -> bool:
    """Whether overlays work for this program. In a user namespace they cannot copy files of other
    users and groups, such as those of a project's group on a cluster.
    """
    if not enter_namespace() or _entered is None:
        return False
    if not _entered.is_of_user:
        return True
    own = (os.geteuid(), os.getegid())
    status = [os.stat(path) for path in (root, cwd)]
    return all((one.st_uid, one.st_gid) == own for one in status)


def _rewrite(held: ActiveRedirection, out: str, kept: list[str]) -> None:
    """Fallback if mounts are not allowed: Python's own functions write elsewhere, and Landlock,
    where available, denies the rest.
    """
    from ..sandbox.landlock import restrict_writes
    from .patches import rewritten_paths

    for path in kept:
        # Programs that compile kernels do not see redirected files, so their caches must exist.
        if os.path.basename(path).startswith((".", "torchinductor_")) and not os.path.exists(path):
            with contextlib.suppress(OSError):
                os.makedirs(path, mode=0o700)
                held.made.append(path)
    for base in temporary_bases(os.environ):
        descriptor = _open(base)
        if descriptor is not None:
            folder, _ = _make_folder(base, descriptor)
            break
    else:
        raise OSError("no location for a temporary folder")
    held.folders.append(folder)
    temporary = os.path.join(folder, "tmp")
    os.mkdir(temporary, 0o700)
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    # The import system does not use the patched functions.
    sys.dont_write_bytecode = True
    through = [os.path.realpath(out), *kept, *_NEVER_COVERED]
    through = [path for path in through if os.path.exists(path)]
    shadows = rewritten_paths.install(folder, through, held.mode == "deny")
    held.layers.append(("/", shadows.upper))
    try:
        restrict_writes([*through, folder])
        held.held_by = "landlock"
    except (OSError, AttributeError):
        held.held_by = "python"


def is_redirected() -> bool:
    """Whether this process inherited its redirection: a rank below its launcher."""
    return os.environ.get(_REDIRECTED_IN) == _this_namespace()


def _this_namespace() -> str:
    """Identifies this process's mount namespace and machine."""
    boot = ""
    path = "/proc/sys/kernel/random/boot_id"
    with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
        boot = file.read().strip()
    try:
        return f"{os.readlink('/proc/self/ns/mnt')} {boot}"
    except OSError:
        return ""  # Not Linux, so nothing is mounted for a run.


class _View:
    """Decides how each folder is covered, and mounts it."""

    def __init__(
        self, held: ActiveRedirection, in_user_namespace: bool, root: str, cwd: str
    ) -> None:
        self._held = held
        self._in_user_namespace = in_user_namespace
        self._mounts = mounts.mounts()
        self._own = [os.path.realpath(path) for path in (root, cwd)]
        self._temporary = {
            os.path.realpath(path) for path in ("/tmp", "/var/tmp", tempfile.gettempdir())
        }
        # Opened now, because names refer to the covering mounts later.
        self._bases = [(base, _open(base)) for base in temporary_bases(os.environ)]
        self._folders: dict[str, tuple[str, int]] = {}
        self._memory: int | None = None
        self._attempts = 0
        # How each place is covered: "overlay", "read-only" or "through" (writes reach the disk).
        self._places: dict[str, str] = {}
        # The path of the new root; "" if the existing one is covered in place.
        self._view = ""

    def cover(self, through: list[str]) -> None:
        """Covers everything, except `through`."""
        self._plan("/", 0)
        for mount in self._mounts.values():
            self._plan_mount(mount)
        for path in self._own:
            if not _is_never_covered(path):
                self._plan(path, _MAX_DEPTH)
        for path in (*self._temporary, *self._shared_folders()):
            self._places.setdefault(path, "overlay")
        for path in (*through, *_sockets()):
            if not _is_never_covered(path):
                self._places[path] = "through"
        places = sorted(self._places, key=_depth)[:_MAX_PLACES]
        opened = {path: _open(path) for path in places}
        for path, descriptor in opened.items():
            if descriptor is not None:
                self._put(path, self._places[path], descriptor)
        for descriptor in (*opened.values(), *(base for _, base in self._bases)):
            if descriptor is not None:
                os.close(descriptor)
        for _, descriptor in self._folders.values():
            os.close(descriptor)
        if self._view:
            if self._held.mode == "deny":
                with self._recording_failure("/"):
                    mounts.make_read_only(self._view, frozenset())
            mounts.change_root(self._view)

    def _plan(self, path: str, depth: int) -> None:
        """Plans an overlay for a folder. In a user namespace, an overlay cannot show mounts below
        its lower layer, so a folder with mounts in it becomes read-only and each part of it gets an
        overlay.
        """
        if path in self._places and depth < _MAX_DEPTH:
            return
        if path == "/" and self._in_user_namespace:
            # If others own it, the program cannot write there anyway.
            self._places[path] = "read-only" if os.access(path, os.W_OK) else "through"
        elif self._in_user_namespace and self._has_mounts_below(path):
            self._places[path] = "read-only"
        else:
            self._places[path] = "overlay"
            if path != "/":
                return
        for part in _folders_in(path):
            if _is_never_covered(part):
                self._places[part] = "through"
            elif part not in self._mounts and depth < _MAX_DEPTH:
                self._plan(part, depth + 1)

    def _has_mounts_below(self, path: str) -> bool:
        return any(is_within(one, path) and one != path for one in self._mounts)

    def _plan_mount(self, mount: Mount) -> None:
        """Plans a mount, because an overlay over a folder above it would hide it."""
        path = mount.path
        if _is_never_covered(path) or path == "/":
            return
        if mount.is_read_only or mount.kind in _VIRTUAL_FILE_SYSTEMS:
            self._places[path] = "through"
        elif os.path.isdir(path):
            self._plan(path, 0)
        else:
            self._places[path] = "read-only"

    def _shared_folders(self) -> Iterable[str]:
        """Yields folders of other users in which this user may create files. A user namespace does
        not know their owner, so it cannot copy them into the upper layer of a parent. The topmost
        folder of an overlay needs no copy.
        """
        if not self._in_user_namespace:
            return
        user, group = os.geteuid(), os.getegid()
        level = [
            path for path, how in self._places.items() if how == "overlay" and _depth(path) == 1
        ]
        for _ in range(_SCANNED_DEPTH):
            below: list[str] = []
            for folder in level:
                below += _folders_in(folder)
            level = below
            for path in below:
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    is_own = status.st_uid == user and status.st_gid == group
                    if not is_own and os.access(path, os.W_OK | os.X_OK):
                        yield path

    def _put(self, path: str, how: str, descriptor: int) -> None:
        if path == "/":
            self._put_root(how, descriptor)
            return
        at = self._view + path
        with self._recording_failure(path):
            if how == "through":
                mounts.bind_mount(descriptor, at, self._has_mounts_below(path))
                return
            denies = self._held.mode == "deny" and path not in self._temporary
            if how == "overlay" and not denies and self._put_overlay(path, at, descriptor):
                return
            # A separate mount, so that what is mounted on top later is not read-only too.
            mounts.bind_mount(descriptor, at, self._has_mounts_below(path))
            mounts.make_read_only(at, self._options_at(path))

    def _put_root(self, how: str, descriptor: int) -> None:
        """Covers the root, which requires a new root. Its upper layer is in memory, because every
        folder is below the root. Folders in it are covered separately.
        """
        with self._recording_failure("/"):
            if how == "overlay":
                at = os.path.join(self._folder_of_run(), "root")
                os.mkdir(at, 0o700)
                if not self._put_overlay("/", at, descriptor):
                    raise OSError("no location for an overlay")
                self._view = at
            elif how == "read-only":
                mounts.make_read_only("/", self._options_at("/"))

    @contextlib.contextmanager
    def _recording_failure(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._held.open.append(f"{path}: {error.strerror or error}")

    def _put_overlay(self, path: str, at: str, lower: int) -> bool:
        """Returns False if no temporary folder works; then the place becomes read-only."""
        number = str(len(self._held.layers))
        for base in [*self._bases, None]:
            if base is not None and is_within(base[0], path):
                continue  # The kernel does not allow an upper layer inside the lower one.
            opened: list[int] = []
            try:
                name, folder = ("", self._in_memory()) if base is None else self._folder_in(*base)
                for part in (f"{number}-upper", f"{number}-work"):
                    os.mkdir(part, 0o700, dir_fd=folder)
                    opened.append(os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder))
                _copy_mode(lower, opened[0])
                mounts.mount_overlay(lower, opened[0], opened[1], at, self._in_user_namespace)
            except OSError:
                self._attempts += 1
                number = f"{number}-{self._attempts}"
                continue
            finally:
                for one in opened:
                    os.close(one)
            # An in-memory layer ends with the namespace, and is not listed.
            self._held.layers.append((path, os.path.join(name, f"{number}-upper") if name else ""))
            return True
        return False

    def _folder_in(self, base: str, descriptor: int | None) -> tuple[str, int]:
        """Returns this run's temporary folder in a base."""
        if descriptor is None:
            raise OSError(f"{base} cannot be opened")
        if base not in self._folders:
            self._folders[base] = _make_folder(base, descriptor)
            self._held.folders.append(self._folders[base][0])
        return self._folders[base]

    def _folder_of_run(self) -> str:
        for base in self._bases:
            with contextlib.suppress(OSError):
                return self._folder_in(*base)[0]
        raise OSError("no location for a temporary folder")

    def _in_memory(self) -> int:
        """Returns an in-memory folder, as a last resort: a checkpoint may have gigabytes."""
        if self._memory is None:
            whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            path = os.path.join(self._folder_of_run(), "memory")
            os.mkdir(path, 0o700)
            mounts.mount_tmpfs(path, max(whole // 8, _MIN_TEMPORARY_BYTES))
            self._memory = os.open(path, os.O_PATH)
        return self._memory

    def _options_at(self, path: str) -> frozenset[str]:
        around = [one for one in self._mounts if is_within(path, one)]
        return self._mounts[max(around, key=len)].options if around else frozenset()


def temporary_bases(variables: Mapping[str, str]) -> list[str]:
    """Returns the folders in which temporary folders may be created: on disks, because a checkpoint
    may have gigabytes. There are several, because none may be below the folder that it is for.
    """
    cache = variables.get("RIDGELINE_CACHE_DIR") or os.path.join(
        variables.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ridgeline"
    )
    own = os.path.join(cache, "redirected")
    with contextlib.suppress(OSError):
        os.makedirs(own, mode=0o700, exist_ok=True)
    places = (own, "/var/tmp", "/tmp", tempfile.gettempdir())
    usable = [os.path.realpath(one) for one in places if os.access(one, os.W_OK | os.X_OK)]
    return list(dict.fromkeys(usable))


def _make_folder(base: str, descriptor: int) -> tuple[str, int]:
    """Creates a private folder that is locked as long as a process of the run lives. Without the
    lock it counts as left behind.
    """
    name = FOLDER_PREFIX + os.urandom(8).hex()
    os.mkdir(name, 0o700, dir_fd=descriptor)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    fcntl.flock(lock, fcntl.LOCK_SH)
    # Inherited by the programs that the run starts, with a number that none of them uses.
    fcntl.fcntl(lock, fcntl.F_DUPFD, _LOCK_DESCRIPTOR)
    os.close(lock)
    return os.path.join(base, name), folder


def _copy_mode(lower: int, upper: int) -> None:
    """Copies the mode of a folder, because the upper layer's mode applies to the topmost folder."""
    status = os.stat(f"/proc/self/fd/{lower}")
    mode = stat.S_IMODE(status.st_mode)
    layer = f"/proc/self/fd/{upper}"
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.chown(layer, status.st_uid, status.st_gid)
    elif status.st_uid != os.geteuid() and not os.access(f"/proc/self/fd/{lower}", os.W_OK):
        mode &= ~0o222
    os.chmod(layer, mode)


def _sockets() -> Iterable[str]:
    """Returns sockets that a process listens on. They could not be reached through an overlay."""
    found: list[str] = []
    path = "/proc/net/unix"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for line in file:
            fields = line.rstrip(b"\n").split(b" ", 7)
            # Paths are in the last column; unnamed and abstract sockets have none.
            name = os.fsdecode(fields[-1]) if len(fields) == 8 else ""
            if name.startswith("/") and len(found) < _MAX_SOCKETS and _is_socket(name):
                found.append(os.path.realpath(name))
    return found


def _is_socket(path: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    return False


def _folders_in(path: str) -> list[str]:
    """Returns the immediate subfolders, without links."""
    with contextlib.suppress(OSError):
        with os.scandir(path) as entries:
            found = [one.path for one in entries if one.is_dir(follow_symlinks=False)]
        return found[:_MAX_PARTS]
    return []


def _is_never_covered(path: str) -> bool:
    return any(is_within(path, one) for one in _NEVER_COVERED)


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])


def _open(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    return None
