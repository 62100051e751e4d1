"""Measures how long hover, inlay hints and code lenses take on a large file at 50 edits per second.

    python tests/bench/answers_while_typing.py [--seconds 10] [--python PYTHON_WITH_TORCH]

Generates a script of 10,000 lines whose iteration runs 100,000 operators, has the server profile
it, and then sends requests while typing into it at 50 edits per second. Prints the median, the 99th
percentile and the maximum of each kind of request, and the server's resident memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from lsp_client import Client

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LINES = 10_000
STATEMENTS_PER_FUNCTION = 98
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def large_script() -> str:
    """10,000 lines, most with one operator each, run ten times per iteration: 100,000 operators."""
    functions = LINES // (STATEMENTS_PER_FUNCTION + 2)
    text = ["import torch", "", ""]
    for number in range(functions):
        text.append(f"def part_{number}(x):")
        text += [f"    x = x + {n}.0" for n in range(STATEMENTS_PER_FUNCTION)]
        text.append("    return x")
    text += [
        "weight = torch.nn.Parameter(torch.ones(4))",
        "optimizer = torch.optim.SGD([weight], lr=0.1)",
        "for step in range(1000):",
        "    with torch.no_grad():",
        "        for repeat in range(10):",
        "            x = torch.ones(4)",
        f"            for part in [{', '.join(f'part_{n}' for n in range(functions))}]:",
        "                x = part(x)",
        "    loss = (weight * 2).sum()",
        "    loss.backward()",
        "    optimizer.step()",
        "",
    ]
    return "\n".join(text)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    args = parser.parse_args()

    work = Path(tempfile.mkdtemp(prefix="ridgeline-bench-"))
    try:
        os.environ["RIDGELINE_CACHE_DIR"] = str(work / "cache")
        os.environ["RIDGELINE_STATE_DIR"] = str(work / "state")
        project = work / "project"
        project.mkdir()
        script = project / "train.py"
        script.write_text(large_script())
        uri = script.as_uri()

        client = Client([args.binary, "lsp"], project, {"interpreter": args.python})
        time.sleep(1)
        print(f"server at rest: {resident_bytes(client.server.pid) / 1e6:.0f} MB (bound: 60)")
        document = {"uri": uri, "languageId": "python", "version": 1, "text": script.read_text()}
        client.notify("textDocument/didOpen", {"textDocument": document})
        client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        client.wait("refreshed hints", lambda m: m["method"] == "workspace/inlayHint/refresh")
        print(f"with the recording: {resident_bytes(client.server.pid) / 1e6:.0f} MB")

        stop = threading.Event()

        def type_continuously() -> None:
            version = 1
            while not stop.wait(1 / 50):
                version += 1
                line = (version * 37) % 9_000 + 3
                at = {"line": line, "character": 0}
                # Inserts and removes a blank line, so that everything below it keeps moving.
                change = (
                    {"range": {"start": at, "end": at}, "text": "\n"}
                    if version % 2 == 0
                    else {
                        "range": {
                            "start": {"line": ((version - 1) * 37) % 9_000 + 3, "character": 0},
                            "end": {"line": ((version - 1) * 37) % 9_000 + 4, "character": 0},
                        },
                        "text": "",
                    }
                )
                client.notify(
                    "textDocument/didChange",
                    {
                        "textDocument": {"uri": uri, "version": version},
                        "contentChanges": [change],
                    },
                )

        typing = threading.Thread(target=type_continuously)
        typing.start()
        latencies: dict[str, list[float]] = {"hover": [], "inlayHint": [], "codeLens": []}
        modified = 0
        deadline = time.monotonic() + args.seconds
        round_number = 0
        while time.monotonic() < deadline:
            round_number += 1
            line = round_number * 131 % 9_000
            # An editor requests hints for the visible range, about 60 lines.
            visible = {
                "start": {"line": line, "character": 0},
                "end": {"line": line + 60, "character": 0},
            }
            for kind, more in (
                ("hover", {"position": {"line": line, "character": 6}}),
                ("inlayHint", {"range": visible}),
                ("codeLens", {}),
            ):
                start = time.monotonic()
                try:
                    client.request(f"textDocument/{kind}", {"textDocument": {"uri": uri}, **more})
                except RuntimeError:
                    modified += 1  # ContentModified: the editor sends the request again
                    continue
                latencies[kind].append((time.monotonic() - start) * 1e3)
            time.sleep(0.01)
        stop.set()
        typing.join()
        for kind, times in latencies.items():
            times.sort()
            p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
            print(
                f"{kind:10} {len(times):5} responses: median {statistics.median(times):6.2f} ms, "
                f"p99 {p99:6.2f} ms (bound: 5), worst {times[-1]:6.2f} ms"
            )
        print(f"requests rejected as outdated (editors repeat them): {modified}")
        client.close()
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
