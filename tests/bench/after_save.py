"""Measures what a save costs on the GPT demo beyond the profiling run itself, and how much memory
is used at rest.

    python tests/bench/after_save.py [--python PYTHON_WITH_TORCH] [--seconds 30] [--rounds 3]

At the first save nothing is known about the machine, so single operators are timed after it. Then
each round saves the same text and observes for the given time: the CPU time of the server and of
all its descendants, from /proc. Exited processes are included through their parents' `cutime`. The
cost of the run itself is what the process tree used until the end of the run was reported. At the
end, prints the remaining processes with their memory (PSS). Linux only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from save_to_hints import is_state

from lsp_client import Client

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def fields(process: int) -> list[str]:
    """Returns the fields of /proc/N/stat after the process name, starting with the third."""
    text = Path(f"/proc/{process}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def tree(root: int) -> list[int]:
    """Returns the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                children.setdefault(int(fields(int(name))[1]), []).append(int(name))
            except OSError:
                continue
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        waiting += children.get(process, [])
    return found


def seconds(root: int) -> float:
    """CPU time of the process tree, including exited children that were waited for."""
    total = 0
    for process in tree(root):
        try:
            total += sum(int(ticks) for ticks in fields(process)[11:15])
        except OSError:
            continue
    return total / TICKS


def pss(process: int) -> float:
    """Proportional set size in megabytes."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text()
    line = next(line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    args = parser.parse_args()

    work = Path(tempfile.mkdtemp(prefix="ridgeline-bench-"))
    try:
        project = work / "gpt"
        shutil.copytree(REPOSITORY / "demo-projects/gpt", project)
        # One letter per run of the program's top level, in a folder that runs may write to.
        run_log = project / "ran/ran"
        run_log.parent.mkdir()
        (project / "ridgeline.toml").write_text('keep_writes = ["ran"]\n')
        script = project / "train.py"
        script.write_text(f"open({str(run_log)!r}, 'a').write('x')\n{script.read_text()}")
        os.environ["RIDGELINE_CACHE_DIR"] = str(work / "cache")
        os.environ["RIDGELINE_STATE_DIR"] = str(work / "state")
        options = {"interpreter": args.python, "watchFiles": False}
        client = Client([args.binary, "lsp"], project, options)
        server = client.server.pid
        uri = script.as_uri()
        document = {"uri": uri, "languageId": "python", "version": 1, "text": script.read_text()}
        client.notify("textDocument/didOpen", {"textDocument": document})

        def save() -> None:
            client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
            client.wait("the start of a run", lambda message: is_state(message, "running"))
            client.wait(
                "its end",
                lambda message: (
                    message["method"] == "$/progress"
                    and message["params"]["value"]["kind"] == "end"
                ),
            )

        def watch(name: str) -> float:
            runs = len(run_log.read_text()) if run_log.exists() else 0
            begin = seconds(server)
            save()
            end = seconds(server)
            time.sleep(args.seconds / 2)
            middle = seconds(server)
            time.sleep(args.seconds / 2)
            final = seconds(server)
            print(
                f"{name}: {end - begin:.1f} s of CPU for the run, then {final - end:.1f} s in "
                f"{args.seconds:.0f} s, of which {final - middle:.1f} s in the second half; "
                f"the program ran {len(run_log.read_text()) - runs} times"
            )
            return final - end

        watch("first save")
        extra = [watch("same text") for _ in range(args.rounds)]
        print(f"beyond the run: median {statistics.median(extra):.1f} s of CPU (bound: 5)")
        total = 0.0
        for process in tree(server):
            command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            size = pss(process)
            total += size
            print(f"at rest: {size:6.0f} MB  {command[:60]}")
        print(f"at rest: {total:6.0f} MB in total (PSS)")
        client.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
