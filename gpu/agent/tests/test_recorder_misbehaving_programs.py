"""Programs that fail or misbehave, and data that must not be recorded."""

from __future__ import annotations

import os
import socket

from recording import record

TRAIN = """
    import os, sys, torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def iterate():
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
"""


def test_exception() -> None:
    recording = record(
        TRAIN
        + """
    from helper import fail
    for i in range(10):
        iterate()
        if i == 5:
            fail()  # here
    """,
        {"helper.py": "def fail():\n    raise KeyError('what')\n"},
    )
    assert recording.outcome == "failed"
    assert recording.manifest["status"] == "failed"
    failure = recording.manifest["failure"]
    assert failure["type"] == "KeyError"
    files = [file["path"] for file in recording.manifest["files"]]
    frames = [(files[frame["file"]], frame["line"]) for frame in failure["frames"]]
    assert frames == [("train.py", recording.line_of("# here")), ("helper.py", 2)]


def test_exception_in_module_during_profiling() -> None:
    recording = record(
        TRAIN
        + """
    class Failing(torch.nn.Module):
        calls = 0
        def forward(self, x):
            Failing.calls += 1
            if Failing.calls == 7:
                raise ValueError("seven")  # here
            return x
    model.extra = Failing()
    model.register_forward_hook(lambda module, inputs, output: module.extra(output))
    while True:
        iterate()
    """
    )
    assert recording.outcome == "failed", recording.printed
    frames = recording.manifest["failure"]["frames"]
    assert frames[-1]["line"] == recording.line_of("# here")


def test_program_that_forks_changes_directory_and_closes_file_descriptors() -> None:
    recording = record(
        TRAIN
        + """
    for i in range(100):
        iterate()
        child = os.fork()
        if child == 0:
            for _ in range(20):
                iterate()
            os._exit(0)
        os.waitpid(child, 0)
        os.chdir("/")
        os.closerange(3, 20)
    """
    )
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["iterations"]["seen"] == 7
    assert recording.printed.count("saving 1 1") == 1


def test_output_folder_that_is_removed() -> None:
    recording = record(
        TRAIN
        + """
    import shutil
    for i in range(100):
        shutil.rmtree(os.path.join(os.path.dirname(__file__), "..", "out"), ignore_errors=True)
        iterate()
    """
    )
    assert recording.outcome == "exited"
    assert "could not be written" in recording.printed


def test_program_that_catches_all_exceptions() -> None:
    recording = record(
        TRAIN
        + """
    while True:
        try:
            iterate()
        except BaseException:
            pass
        finally:
            print("finally", flush=True)
    """
    )
    assert recording.outcome == "complete"
    # The process exits inside the last step, so that the program does not write a checkpoint.
    assert recording.printed.count("finally") == 6


def test_file_edited_during_run() -> None:
    recording = record(
        TRAIN
        + """
    import time
    from helper import help
    for name in ("helper.py",):
        path = os.path.join(os.path.dirname(__file__), name)
        future = time.time() + 10
        os.utime(path, (future, future))
    while True:
        help()
        iterate()
    """,
        {"helper.py": "def help():\n    pass\n"},
    )
    lines = {file["path"]: len(file["line_crc"]) for file in recording.manifest["files"]}
    assert lines["helper.py"] == 0
    assert lines["train.py"] > 10


def test_recording_contains_no_private_data() -> None:
    recording = record(
        TRAIN
        + """
    os.environ["RIDGELINE_SECRET"] = "correct-horse"
    print("correct-horse")
    while True:
        iterate()
    """,
        args=["battery-staple"],
        env={"OTHER": "battery-staple"},
    )
    assert recording.outcome == "complete"
    for name in os.listdir(recording.folder):
        content = (recording.folder / name).read_bytes()
        for secret in (
            "correct-horse",
            "battery-staple",
            str(recording.source),
            os.path.dirname(os.__file__),
            f'"{socket.gethostname()}"',
        ):
            assert secret.encode() not in content, (name, secret)
    assert sorted(os.listdir(recording.folder)) == ["lines.bin", "manifest.json", "trace.json"]


def test_recorder_error_becomes_note_and_program_continues() -> None:
    recording = record(
        TRAIN
        + """
    class Odd(torch.utils.data.Dataset):
        def __len__(self):
            return 1000
        def __getitem__(self, index):
            return index
    class Batch:
        @property
        def __dict__(self):
            raise RuntimeError("not for you")
    loader = torch.utils.data.DataLoader(Odd(), batch_size=2, collate_fn=lambda samples: Batch())
    for batch in loader:
        iterate()
    """
    )
    assert recording.outcome == "complete", recording.printed
    assert any("not for you" in note for note in recording.manifest["notes"])
    assert recording.manifest["batch"]["size"] == 3


def test_program_that_sets_trace_function() -> None:
    """The trace function of a debugger or a coverage tool must not make the run fail."""
    recording = record(
        TRAIN
        + """
    seen = []
    sys.settrace(lambda frame, event, arg: seen.append(event))
    while True:
        iterate()
    """
    )
    assert recording.outcome == "complete", recording.printed
    assert [event for event in recording.events() if event[1] == "LINE"]


def test_program_that_freezes_the_clock() -> None:
    recording = record(
        TRAIN
        + """
    import time
    for name in ("time", "monotonic", "perf_counter", "thread_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, name + "_ns", lambda: 0)
    while True:
        iterate()
    """
    )
    assert recording.outcome == "complete", recording.printed
    iterations = recording.manifest["iterations"]
    assert all(time_ns > 0 for time_ns in iterations["timed_ns"])


def test_program_that_replaces_json() -> None:
    """As by a faster implementation, which returns bytes."""
    recording = record(
        TRAIN
        + """
    import json
    json.dumps = json.loads = lambda value: b"{}"
    json.dump = json.load = None
    while True:
        iterate()
    """
    )
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["iterations"]["timed_ns"]


def test_threads_that_compute_during_training() -> None:
    recording = record(
        TRAIN
        + """
    import threading
    def compute():
        other = torch.nn.Linear(8, 1)
        while True:
            other(torch.ones(5, 8)).sum().backward()
    iterate()
    for _ in range(3):
        threading.Thread(target=compute, daemon=True).start()
    while True:
        iterate()
    """
    )
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["iterations"]["found_by"] == "optimizer"
    assert recording.manifest["iterations"]["seen"] == 7
    assert recording.manifest["batch"] == {"size": 3, "from": "input", "certain": True}
    assert len(recording.manifest["threads"]) >= 2
