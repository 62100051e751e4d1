"""Linux mount namespaces through a few libc calls, and the mount table.

A process with its own mount namespace can give the program that it runs another view of the file
system. The namespace and all its mounts end with its last process.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from dataclasses import dataclass

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MS_NOATIME, _MS_NODIRATIME, _MS_RELATIME = 1024, 2048, 1 << 21
_KEPT_FLAGS = {
    "nosuid": _MS_NOSUID,
    "nodev": _MS_NODEV,
    "noexec": _MS_NOEXEC,
    "noatime": _MS_NOATIME,
    "nodiratime": _MS_NODIRATIME,
    "relatime": _MS_RELATIME,
}
_CAP_SYS_ADMIN = 21
_CAPABILITIES_VERSION = 0x20080522


@dataclass(frozen=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    path: str
    kind: str
    options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        """Whether it is mounted read-only."""
        return "ro" in self.options


def mounts() -> dict[str, Mount]:
    """Returns the mounts by path. If several are mounted at one path, the topmost."""
    found: dict[str, Mount] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            fields, rest = left.split(), right.split()
            if len(fields) < 6 or not rest:
                continue
            path = re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), fields[4])
            super_options = rest[2].split(",")[:1] if len(rest) > 2 else []
            options = frozenset(fields[5].split(",") + super_options)
            found[path] = Mount(path, rest[0], options)
    return found


def enter_mount_namespace() -> bool:
    """Gives this process its own mount namespace. Returns whether that required a user namespace.

    Raises OSError if the system does not allow it: if user namespaces are not permitted, as in most
    containers, or if a process that needs one has several threads.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(f"{sys.platform} has no mount namespaces")
    needs_user = not _may_administer()
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWNS | (_CLONE_NEWUSER if needs_user else 0))
    if needs_user:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    # New mounts must not propagate to the outside.
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)
    return needs_user


def mount_overlay(lower: int, upper: int, work: int, path: str, in_user_namespace: bool) -> None:
    """Mounts an overlay at `path`. The folders are file descriptors, because names may contain the
    commas and colons that separate options, and because `path` may already be covered.
    """
    options = ",".join(
        f"{name}dir=/proc/self/fd/{descriptor}"
        for name, descriptor in (("lower", lower), ("upper", upper), ("work", work))
    )
    # Only the system's administrator may use `trusted` extended attributes. Without them, an
    # overlay cannot rename folders of the lower layer.
    options += ",userxattr" if in_user_namespace else ",redirect_dir=on"
    try:
        # Nothing in the overlay outlives the run, so it need not be synced to disk.
        _mount("overlay", path, "overlay", 0, options + ",volatile")
    except OSError:  # Linux before 5.10 does not support the option.
        _mount("overlay", path, "overlay", 0, options)


def bind_mount(source: int, path: str, with_mounts: bool) -> None:
    """Bind-mounts the descriptor's file or folder at `path`, optionally with its submounts."""
    flags = _MS_BIND | (_MS_REC if with_mounts else 0)
    _mount(f"/proc/self/fd/{source}", path, None, flags, None)


def mount_tmpfs(path: str, max_bytes: int) -> None:
    """Mounts an empty in-memory file system at `path`."""
    _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=0700,size={max_bytes}")


def make_read_only(path: str, options: frozenset[str]) -> None:
    """Makes the mount at `path` read-only. Its other options must not change."""
    kept = sum(flag for name, flag in _KEPT_FLAGS.items() if name in options)
    _mount("none", path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept, None)


def change_root(path: str) -> None:
    """Makes the mount at `path` the root, and detaches the previous root."""
    os.chdir(path)
    try:
        _call("pivot_root", b".", b".")
        _call("umount2", b".", _MNT_DETACH)
    except (OSError, AttributeError):
        # The initial root cannot be detached, and a libc may lack the call.
        os.chroot(".")
    os.chdir("/")


def drop_capabilities() -> None:
    """Drops the capabilities in the user namespace, so the program cannot undo the mounts."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("process", ctypes.c_int)]

    header = Header(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _call("capset", ctypes.byref(header), ctypes.byref(none))


def _may_administer() -> bool:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def _mount(source: str, path: str, kind: str | None, flags: int, options: str | None) -> None:
    _call(
        "mount",
        os.fsencode(source),
        os.fsencode(path),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None if options is None else options.encode(),
    )


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
