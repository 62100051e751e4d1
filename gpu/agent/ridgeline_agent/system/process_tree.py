"""A process and everything that it started: who they are, what memory they hold, how to end them.

On Linux this reads /proc, and the supervisor is a "child subreaper" (prctl(2)), so that a daemon
whose parents have ended is still found below it. Elsewhere a process group has to do, and memory
is not known.
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
    """Descendants whose parent ends become children of this process, in whatever session."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """This process is killed when the thread that started it ends. `parent` is that thread's
    process.
    """
    if not ON_LINUX:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call above, and then no signal comes any more.
    if os.getppid() != parent:
        os._exit(1)


def descendants(process: int) -> list[int]:
    """All processes below this one, without itself."""
    found: list[int] = []
    waiting = [process]
    parents = None if _LISTS_CHILDREN else _parents()
    while waiting:
        one = waiting.pop()
        children = _children(one) if parents is None else parents.get(one, [])
        found += children
        waiting += children
    return found


def memory_bytes(processes: list[int], limit: int, since: float) -> int:
    """The memory that the processes hold together, with files in memory that they have open
    (memfd) or have left in /dev/shm since the time `since`.

    Resident sizes count a shared page once for each process, and a file that is mapped twice. They
    are quick to read, and only where they sum up to more than `limit` is each process's fair share
    of the shared pages asked for.
    """
    resident = sum(_resident(process) for process in processes)
    files = files_in_memory.open_in(processes) | files_in_memory.left_since(since)
    if resident + sum(files.values()) <= limit:
        return resident + sum(files.values())
    own = files_in_memory.without_those_of_others(files, processes)
    if own:
        return sum(own.values()) + files_in_memory.mapped_beside(own, processes)
    return sum(_proportional(process) for process in processes)


def waited_ns(processes: list[int]) -> int | None:
    """How long the threads of these processes have been ready to run while others had the
    processors, all together, in nanoseconds; None where the system does not tell.
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


def ask_below(process: int, seconds: float) -> None:
    """Asks everything below this process to end, and waits until it has or the time is over."""
    end = time.monotonic() + seconds
    for one in descendants(process):
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGTERM)
    while time.monotonic() < end and not all(_reap(one) for one in descendants(process)):
        time.sleep(0.01)


def kill_below(process: int, keep: frozenset[int], seconds: float = 3.0) -> None:
    """Kills everything below this process but `keep`, until nothing is left or the time is over.

    Processes that fork while they are killed are found in the next round. multiprocessing's
    resource tracker gets a moment: it ends when the others have, and removes the semaphores and
    shared memory that they left in /dev/shm.
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
    """Kills a process that leads a session, with its group; on Windows with what it started."""
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
    """How many threads there are, also those that Python knows nothing of. 1 where it cannot be
    known.
    """
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def scripts(processes: list[int]) -> list[str]:
    """The names of the Python scripts that these processes run, each once."""
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
    """How often the kernel killed a process for memory since it started, as far as it can be seen
    from here.
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
    """All processes by their parent. For kernels whose /proc does not list children."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        fields = _read(f"/proc/{entry}/stat").rpartition(") ")[2].split() if entry.isdigit() else []
        if len(fields) > 1:
            parents.setdefault(int(fields[1]), []).append(int(entry))
    return parents


def _reap(process: int) -> bool:
    """Whether the process has ended. One that is this process's own child leaves its entry in the
    table.
    """
    # The state follows the name, which stands in brackets and may hold anything.
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

    # A libc without prctl (none is known) leaves the end of the input to end everything.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
