"""Measures the accuracy of estimates of unsaved text: edits the demos, estimates, then saves and
measures.

    python tests/bench/live_estimates.py [--demos gpt,resnet] [--rounds 3] [--python PYTHON]
        [--binary BINARY]

For each edit, prints the iteration time and the peak memory, estimated and measured, the median
error of the estimated lines that take at least 1% of the iteration, and the delay between the pause
in typing and the estimate. Lines are compared by their inlay hints, as an editor shows them, which
are rounded to two or three digits. On a shared machine, OMP_NUM_THREADS=1 makes measurements more
reproducible.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lsp_client import Client, Message
from take_turns import keep_pages

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# On a shared machine, spinning OpenMP threads would make the result depend on other load.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
keep_pages()

PAUSE = 0.25
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
LABEL = re.compile(r"(~?)([0-9.]+) (ns|µs|ms|s)\b")

# Edits per demo: the name, the file, and the text before and after.
EDITS = {
    "gpt": [
        ("hidden size 128 to 192", "model.py", "width: int = 128", "width: int = 192"),
        ("depth 4 to 6", "model.py", "layers: int = 4", "layers: int = 6"),
        ("batch 8 to 16", "train.py", "default=8", "default=16"),
    ],
    "bert": [
        ("hidden size 128 to 256", "model.py", "hidden: int = 128", "hidden: int = 256"),
        ("depth 2 to 4", "model.py", "layers: int = 2", "layers: int = 4"),
        ("batch 8 to 16", "train.py", "default=8", "default=16"),
    ],
    "resnet": [
        (
            "hidden size: 64 to 96 planes in layer1",
            "model.py",
            "_make_layer(64,",
            "_make_layer(96,",
        ),
        ("depth: 6 to 3 blocks", "model.py", "[3, 4, 6, 3]", "[3, 4, 3, 3]"),
        ("batch 8 to 4", "train.py", "default=8", "default=4"),
    ],
    "ncf": [
        ("hidden size 32 to 64", "model.py", "factors: int = 32", "factors: int = 64"),
        ("batch 512 to 1024", "train.py", "default=512", "default=1024"),
    ],
    "seq2seq": [
        ("hidden size 128 to 192", "train.py", "1000, 128, 24", "1000, 192, 24"),
        ("batch 16 to 32", "train.py", "default=16", "default=32"),
    ],
    "dcgan": [
        (
            "hidden size 32 to 48",
            "train.py",
            '"--features", type=int, default=32',
            '"--features", type=int, default=48',
        ),
        ("batch 16 to 32", "train.py", "default=16", "default=32"),
    ],
}


class Editor:
    """A demo that is open in an editor."""

    def __init__(self, binary: str, python: str, project: Path) -> None:
        self.project = project
        options: Message = {
            "interpreter": python,
            "watchFiles": False,
            "inlayHints.minimumShare": 0.01,
            "live.delayMilliseconds": PAUSE * 1e3,
        }
        self.client = Client([binary, "lsp"], project, options)
        self.texts = {path: path.read_text() for path in sorted(project.glob("*.py"))}
        self.version = 1
        for path, text in self.texts.items():
            document = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": text}
            self.client.notify("textDocument/didOpen", {"textDocument": document})

    def type(self, path: Path, text: str) -> float:
        self.version += 1
        document = {"uri": path.as_uri(), "version": self.version}
        changes = [{"text": text}]
        self.client.notify(
            "textDocument/didChange", {"textDocument": document, "contentChanges": changes}
        )
        return time.monotonic()

    def save(self, path: Path, text: str) -> Message:
        """Saves, and returns the headline of the measurement."""
        path.write_text(text)
        self.client.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})
        self.headline(lambda status: status["state"] == "running")
        _, status = self.headline(lambda status: status["state"] != "running")
        if status["state"] == "failed":
            raise RuntimeError(status["message"])
        return status["headline"]

    def headline(self, matches) -> tuple[float, Message]:
        def is_status(message: Message) -> bool:
            return message["method"] == "ridgeline/status" and matches(message["params"])

        received, message = self.client.wait("a status", is_status, timeout=300)
        return received, message["params"]

    def lines(self) -> dict[tuple[str, int], tuple[bool, float]]:
        """Returns whether each line is estimated, and its seconds, by file and line."""
        found = {}
        for path in self.texts:
            whole = {"start": {"line": 0, "character": 0}, "end": {"line": 10_000, "character": 0}}
            params = {"textDocument": {"uri": path.as_uri()}, "range": whole}
            for hint in self.client.request("textDocument/inlayHint", params) or []:
                label = LABEL.search(hint["label"])
                if label is not None and not hint["label"].startswith("was"):
                    seconds = float(label[2]) * UNITS[label[3]]
                    found[path.name, hint["position"]["line"]] = (label[1] == "~", seconds)
        return found


class Minimum:
    """The minimum over several rounds, because other load only makes lines slower."""

    def __init__(self) -> None:
        self.time, self.peak = float("inf"), float("inf")
        self.lines: dict[tuple[str, int], float] = {}
        self.estimated_lines: set[tuple[str, int]] = set()

    def add(self, headline: Message, lines: dict[tuple[str, int], tuple[bool, float]]) -> None:
        self.time = min(self.time, headline["timeMs"])
        self.peak = min(self.peak, headline["peakBytes"])
        for line, (is_estimated, seconds) in lines.items():
            self.lines[line] = min(seconds, self.lines.get(line, seconds))
            if is_estimated:
                self.estimated_lines.add(line)


def differences(
    before: dict[tuple[str, int], tuple[bool, float]],
    now: dict[tuple[str, int], tuple[bool, float]],
) -> list[float]:
    """Returns how much two measurements of one text differ on each line. No estimate can be more
    accurate.
    """
    both = [(before[line][1], seconds) for line, (_, seconds) in now.items() if line in before]
    return [abs(first / second - 1) for first, second in both if second > 0]


def is_estimated(status: Message) -> bool:
    return "~" in ((status["headline"] or {}).get("text") or "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demos", default=",".join(EDITS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    args = parser.parse_args()
    all_errors, peaks, noise = [], [], []
    for demo in args.demos.split(","):
        work = Path(tempfile.mkdtemp(prefix="ridgeline-live-"))
        os.environ["RIDGELINE_CACHE_DIR"] = str(work / "cache")
        os.environ["RIDGELINE_STATE_DIR"] = str(work / "state")
        try:
            project = work / demo
            shutil.copytree(REPOSITORY / "demo-projects" / demo, project)
            editor = Editor(args.binary, args.python, project)
            for what, name, before, after in EDITS[demo]:
                path = project / name
                text = path.read_text()
                if before not in text:
                    raise RuntimeError(f"{demo}/{name} has no {before!r}")
                edited = text.replace(before, after, 1)
                estimated, measured, waits = Minimum(), Minimum(), []
                previous: dict[tuple[str, int], tuple[bool, float]] = {}
                for _ in range(args.rounds):
                    editor.save(path, text)
                    unchanged = editor.lines()
                    noise += differences(previous, unchanged)
                    previous = unchanged
                    # The saved text is estimated when the server is otherwise idle.
                    time.sleep(3)
                    start = editor.type(path, edited)
                    received, status = editor.headline(is_estimated)
                    waits.append(received - start - PAUSE)
                    estimated.add(status["headline"], editor.lines())
                    measured.add(editor.save(path, edited), editor.lines())
                    editor.type(path, text)
                errors = [
                    abs(seconds / measured.lines[line] - 1)
                    for line, seconds in estimated.lines.items()
                    if line in estimated.estimated_lines and measured.lines.get(line, 0) > 0
                ]
                editor.save(path, text)
                all_errors += errors
                peak = abs(estimated.peak / measured.peak - 1)
                peaks.append(peak)
                error = statistics.median(errors) if errors else 0
                print(
                    f"{demo}, {what}: {estimated.time:.1f} ms, measured {measured.time:.1f}; "
                    f"peak {estimated.peak / 1e6:.1f} MB, measured {measured.peak / 1e6:.1f} "
                    f"({peak:.1%}); {len(errors)} lines, median error {error:.1%}; "
                    f"{statistics.median(waits) * 1e3:.0f} ms after the pause",
                    flush=True,
                )
            editor.client.close()
        finally:
            shutil.rmtree(work, ignore_errors=True)
    if all_errors:
        lines, peak = statistics.median(all_errors), statistics.median(peaks)
        print(f"{len(all_errors)} lines: median error {lines:.1%} (bound: 15%)")
        noise_floor = statistics.median(noise) if noise else float("nan")
        print(f"the same text measured twice: lines differ by {noise_floor:.1%} (median)")
        print(f"peaks: largest error {max(peaks):.1%}, median {peak:.1%} (bound: 2%)")


if __name__ == "__main__":
    main()
