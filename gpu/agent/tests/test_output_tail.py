"""The tail of a program's output, and details of its exceptions."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

import agent_driver
from ridgeline_agent.failure.crash_report import activity
from ridgeline_agent.failure.exception import describe_failure
from ridgeline_agent.failure.output_tail import MAX_BYTES, MAX_LINES, last_lines

ROOT = "/home/someone/project"


def tail(text: str) -> list[str]:
    return last_lines(text.encode(), ROOT)


def test_escapes_and_progress_bars() -> None:
    assert tail("\x1b[1;31mred\x1b[0m\x1b]0;title\x07\n 10%|#\r 90%|#########\r\n\n\x07end\n") == [
        "red",
        " 90%|#########",
        " end",
    ]


def test_paths_are_shortened() -> None:
    text = f"reading {ROOT}/data/a.bin\nkept in /home/someone/cache/models\n"
    assert tail(text) == ["reading data/a.bin", "kept in …/models"]


def test_tracebacks_are_reduced_to_exceptions() -> None:
    text = """\
before
Traceback (most recent call last):
  File "/home/someone/project/a.py", line 1, in <module>
    f()
    ~^^
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/someone/project/a.py", line 3, in <module>
KeyError: 'second'
after
"""
    assert tail(text) == ["before", "ValueError: first", "KeyError: 'second'", "after"]
    ranks = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "a"\n[rank1]: OSError: x\n'
    )
    assert tail(ranks) == ["[rank1]: OSError: x"]
    prompt = 'Overwrite? Traceback (most recent call last):\n  File "a"\nEOFError: EOF\n'
    assert tail(prompt) == ["Overwrite?", "EOFError: EOF"]


def test_box_borders_are_removed() -> None:
    assert tail("╭─ Error ──╮\n│ Missing option '--data'. │\n╰──╯\n") == [
        "Error",
        "Missing option '--data'.",
    ]


def test_messages_of_the_profiler_are_removed() -> None:
    now = "2026-11-27 06:58:23 12:12"
    text = (
        f"0%| 0/9 [00:00<?]USDT:{now} SyncActivityProfilerHandler.cpp:39] profiler_start\n"
        "[W1127 06:58:23.093981999 CPUAllocator.cpp:245] Memory block of unknown size\n"
        f"ERROR:{now} DeviceProperties.cpp:56] gpuGetDeviceCount failed\nloss 1\n"
    )
    assert tail(text) == ["0%| 0/9 [00:00<?]", "loss 1"]


def test_rules_are_removed() -> None:
    assert tail("=====\nSeed: 0\n----- \n| |\n") == ["Seed: 0"]


def test_source_lines_of_warnings_are_removed() -> None:
    warning = "a.py:3: UserWarning: old"
    assert tail(f"{warning}\n  logger.warn(\n  indented\n") == [warning, "  indented"]


def test_tail_is_limited() -> None:
    lines = tail("\n".join(f"{number} " + "x" * 1000 for number in range(1000)))
    assert len(lines) == MAX_LINES and lines[-1].startswith("999 ")
    assert max(map(len, lines)) <= 300
    assert tail("y" * (2 * MAX_BYTES)) == []
    assert last_lines(b"\xff\xfe", ROOT) == ["\ufffd\ufffd"]


def failure_of(source: str, **names: Any) -> dict[str, Any]:
    path = f"{ROOT}/train.py"
    try:
        exec(compile(source, path, "exec"), {"__name__": "__main__", **names})
    except BaseException as error:
        return describe_failure(error, ROOT, lambda file: 0 if file == path else None)
    raise AssertionError("the source raises nothing")


def test_missing_file() -> None:
    facts = failure_of(f"open('{ROOT}/data/x.csv')\n")["facts"]
    assert (facts["errno"], facts["file"]) == ("ENOENT", "data/x.csv")
    assert failure_of("open('/no/such/folder/x.csv')\n")["facts"]["file"] == "…/x.csv"


def test_missing_environment_variable() -> None:
    raised = failure_of("import os\nos.environ['NO_SUCH_VARIABLE']\n")["facts"]["raised_in"]
    assert raised == {"path": "os.py", "name": "__getitem__"}


def test_package_of_another_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "other/lib/site-packages"
    packages.mkdir(parents=True)
    (packages / "leaves.py").write_text("def leave():\n    raise SystemExit(2)\n")
    monkeypatch.syspath_prepend(str(packages))
    raised = failure_of("import leaves\nleaves.leave()\n")["facts"]["raised_in"]
    assert raised == {"path": "leaves.py", "name": "leave"}


def test_colored_message() -> None:
    failure = failure_of("raise ValueError('\\x1b[1mbold\\x1b[0m and plain')\n")
    assert failure["message"] == "bold and plain"


def test_module_and_version() -> None:
    module = failure_of("from pytest import no_such_name\n")["facts"]["module"]
    if sys.version_info >= (3, 10):
        version = pytest.__version__
        assert module == {"name": "pytest", "version": version, "not_imported": None}
        # The attribute may be one of a class.
        module = failure_of("import torch\ntorch.nn.Linear.no_such_name\n")["facts"]["module"]
        version = importlib.metadata.version("torch")
        name = "torch.nn.modules.linear"
        assert module == {"name": name, "version": version, "not_imported": None}
    assert failure_of("import no_such_module_at_all\n")["facts"]["module"] == {
        "name": "no_such_module_at_all",
        "version": None,
        "not_imported": None,
    }


def test_exit_in_exception_handler_of_library() -> None:
    # A framework that catches an exception of the program and exits.
    library: dict[str, Any] = {}
    exec(
        compile(
            "import sys\ndef run(f):\n    try:\n        f()\n    except Exception:\n"
            "        sys.exit(1)\n",
            "/usr/lib/framework.py",
            "exec",
        ),
        library,
    )
    failure = failure_of("def main():\n    1 / 0\nrun(main)\n", run=library["run"])
    assert [frame["line"] for frame in failure["frames"]] == [3, 2]
    assert failure["message"].endswith("caused by ZeroDivisionError: division by zero")
    assert failure["facts"]["causes"] == ["ZeroDivisionError"]
    # If the program itself exits, that line is reported.
    failure = failure_of(
        "import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(3)\n"
    )
    assert [frame["line"] for frame in failure["frames"]] == [5]
    assert failure["facts"]["exit_code"] == 3


def test_exception_of_another_process() -> None:
    # The message format of torch._utils.ExceptionWrapper.
    text = (
        "Caught KeyError in DataLoader worker process 2.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/usr/lib/python3/torch/utils/data/_utils/worker.py", line 349, in _worker_loop\n'
        "    data = fetcher.fetch(index)\n"
        f'  File "{ROOT}/train.py", line 17, in __getitem__\n'
        "    return self.labels[name]\n"
        "           ~~~~~~~~~~~^^^^^^\n"
        "KeyError: 'cat'\n"
    )
    failure = failure_of("raise KeyError(text)\n", text=KeyErrorText(text))
    assert failure["message"] == "'cat' (in DataLoader worker process 2)"
    assert [frame["line"] for frame in failure["frames"]] == [1, 17]
    assert failure["facts"]["raised_in"] == {"path": "train.py", "name": "__getitem__"}


class KeyErrorText(str):
    """Shows the message of a KeyError without quotes, like torch's KeyErrorMessage."""

    def __repr__(self) -> str:
        return str(self)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (
            [("/p/lib/python3.12/site-packages/torch/utils/data/dataloader.py", "_next_data")],
            "data",
        ),
        (
            [
                ("/p/site-packages/slow/inner.py", "<module>"),
                ("<frozen importlib._bootstrap>", "_call_with_frames_removed"),
                ("/p/site-packages/slow/__init__.py", "<module>"),
                ("<frozen importlib._bootstrap>", "_find_and_load"),
            ],
            "import slow",
        ),
        ([("/usr/lib/python3.12/multiprocessing/process.py", "join")], "processes"),
        ([("/usr/lib/python3.12/json/decoder.py", "decode")], None),
        ([], None),
    ],
)
def test_activity(frames: list[tuple[str, str]], expected: str | None) -> None:
    assert activity(frames) == expected


def test_finished_event_contains_output(agent: agent_driver.Agent, tmp_path: Path) -> None:
    finished = agent.run(tmp_path, "print('begins')\nraise ValueError('x')\n")
    assert finished["output"] == ["begins", "ValueError: x"]
