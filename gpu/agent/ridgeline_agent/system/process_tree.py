"""A process and its descendants: their IDs, their memory, and how to end them.

On Linux this reads /proc. The supervisor is a "child subreaper" (prctl(2)), so a daemon whose
parents have exited is still found below it. On other systems a process group is used instead, and
memory is not reported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from . import files_in_memory

ON_LINUX = sys.platform.startswith("linux")

_LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")
_TRACKER_SECONDS = 0.3
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes orphaned descendants children of this process, in any session."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Has this process killed when the thread that started it ends. `parent` is the process of that
    thread.
    """
    if not ON_LINUX:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call above; then the signal never comes.
    if os.getppid() != parent:
        os._exit(1)


def descendants(process: int) -> list[int]:
    """Returns all processes below this one, without itself."""
    found: list[int] = []
    pending = [process]
    parents = None if _LISTS_CHILDREN else _parents()
    while pending:
        one = pending.pop()
        children = _children(one) if parents is None else parents.get(one, [])
        found += children
        pending += children
    return found


def memory_bytes(processes: list[int], limit: int, since: float) -> int:
    """Returns the total memory of the processes in bytes, including in-memory files that they have
    open (memfd) or have left in /dev/shm since the time `since`.

    Resident sizes count a shared page once per process, and a mapped file twice. They are fast to
    read; only if their sum exceeds `limit` are the proportional sizes read.
    """
    resident = sum(_resident(process) for process in processes)
    files = files_in_memory.open_files(processes) | files_in_memory.shm_files_since(since)
    if resident + sum(files.values()) <= limit:
        return resident + sum(files.values())
    own = files_in_memory.exclude_foreign(files, processes)
    if own:
        return sum(own.values()) + files_in_memory.mapped_bytes_except(own, processes)
    return sum(_proportional(process) for process in processes)


def scheduler_wait_ns(processes: list[int]) -> int | None:
    """Returns the total time that threads of these processes were ready to run but waited for a
    CPU, in nanoseconds. Returns None if the system does not report it.
    """
    total = 0
    for process in processes:
        try:
            threads = os.listdir(f"/proc/{process}/task")
            for thread in threads:
                with open(f"/proc/{process}/task/{thread}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            if process == os.getpid():
                return None
    return total


def terminate_descendants(process: int, seconds: float) -> None:
    """Sends SIGTERM to all descendants, and waits for them until the time is over."""
    end = time.monotonic() + seconds
    for one in descendants(process):
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGTERM)
    while time.monotonic() < end and not all(_reap(one) for one in descendants(process)):
        time.sleep(0.01)


def kill_descendants(process: int, keep: frozenset[int], seconds: float = 3.0) -> None:
    """Kills all descendants except `keep`, until none is left or the time is over.

    Processes that fork meanwhile are killed in the next round. multiprocessing's resource tracker
    gets a moment: it ends after the others, and removes the semaphores and shared memory that they
    left in /dev/shm.
    """
    begin = time.monotonic()
    end = begin + seconds
    tracking_until = begin + min(seconds / 2, _TRACKER_SECONDS)
    while True:
        living = [one for one in descendants(process) if one not in keep and not _reap(one)]
        if not living or time.monotonic() > end:
            return
        for one in living:
            if time.monotonic() < tracking_until and _is_tracker(one):
                continue
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.002)


def kill_group(process: int) -> None:
    """Kills a session leader with its group; on Windows with its children."""
    if sys.platform == "win32":
        subprocess.run(
            ["taskkill", "/F", "/T", "/PID", str(process)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return
    with contextlib.suppress(OSError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)


def threads_of_this_process() -> int:
    """Returns the number of threads, including those that Python does not know. Returns 1 if
    unknown.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def scripts(processes: list[int]) -> list[str]:
    """Returns the names of the Python scripts that these processes run, without duplicates."""
    names: dict[str, None] = {}
    for process in processes:
        words = _read(f"/proc/{process}/cmdline").split("\0")
        if os.path.basename(words[0]).startswith("python"):
            script = next((word for word in words[1:] if not word.startswith("-")), "")
            name = os.path.basename(script)
            if name.endswith(".py") and name != "boot.py":
                names[name] = None
    return list(names)


def kernel_memory_kills() -> int:
    """Returns how often the kernel's OOM killer has killed a process, as far as this process can
    see.
    """
    kills = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        for line in _read(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdigit():
                kills += int(count)
    return kills


def _children(process: int) -> list[int]:
    children: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{process}/task")
    except OSError:
        return []
    for task in tasks:
        children += [int(child) for child in _read(f"/proc/{process}/task/{task}/children").split()]
    return children


def _parents() -> dict[int, list[int]]:
    """Returns all processes by parent. For kernels whose /proc does not list children."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        fields = _read(f"/proc/{entry}/stat").rpartition(") ")[2].split() if entry.isdigit() else []
        if len(fields) > 1:
            parents.setdefault(int(fields[1]), []).append(int(entry))
    return parents


def _reap(process: int) -> bool:
    """Whether the process has ended. Also collects its exit status if it is a child of this
    process.
    """
    # The state follows the name, which is in parentheses and may contain anything.
    state = _read(f"/proc/{process}/stat").rpartition(") ")[2][:1]
    if state not in ("", "Z", "X"):
        return False
    with contextlib.suppress(OSError):
        os.waitpid(process, os.WNOHANG)
    return True


def _is_tracker(process: int) -> bool:
    return "multiprocessing.resource_tracker" in _read(f"/proc/{process}/cmdline")


def _resident(process: int) -> int:
    fields = _read(f"/proc/{process}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def _proportional(process: int) -> int:
    for line in _read(f"/proc/{process}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(process)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _prctl(option: int, value: int) -> None:
    if not ON_LINUX:
        return
    import ctypes

    # Without prctl (no such libc is known), processes still end at the end of their input.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
