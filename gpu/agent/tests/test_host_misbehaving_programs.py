"""Every kind of misbehaving program gives exactly one `finished` event with the right outcome."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agent_driver import TRAINING, Agent, all_exit, is_alive, log, manifest
from ridgeline_agent.record.manifest import save_trace

COMPLETE = TRAINING + "train(1000)\n"
ON_LINUX = sys.platform.startswith("linux")


def check(agent: Agent, folder: Path, text: str | bytes, outcome: str, **keys: Any) -> str:
    """Runs the text, checks that it gives exactly one `finished` event, and returns its message."""
    identifier = agent.start(folder, text, **keys)
    events = agent.events_until_finished(identifier)
    finished = events[-1]
    assert finished["outcome"] == outcome, (finished, log(folder)[-2000:])
    assert [event["event"] for event in events].count("finished") == 1
    return finished["message"] or ""


def failure(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = manifest(folder)["failure"]
    return result


def test_training_completes(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, COMPLETE, "complete")
    assert manifest(tmp_path)["status"] == "complete"


def test_program_does_not_continue_after_measurement(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING + "try:\n    train(1000)\nfinally:\n    open('checkpoint', 'w')\n"
    check(agent, tmp_path, text, "complete")
    assert not (tmp_path / "checkpoint").exists()


def test_program_raises(agent: Agent, tmp_path: Path) -> None:
    message = check(agent, tmp_path, TRAINING + "model(torch.zeros(3))\n", "failed")
    assert message.startswith("RuntimeError: ")
    assert failure(tmp_path)["frames"][-1]["line"] == 9


def test_traceback_in_log_excludes_agent_frames(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "1 / 0\n", "failed")
    assert b"ZeroDivisionError" in log(tmp_path)
    assert b"ridgeline_agent" not in log(tmp_path)


def test_exception_with_failing_str(agent: Agent, tmp_path: Path) -> None:
    text = "class Bad(Exception):\n    def __str__(self):\n        raise ValueError\nraise Bad\n"
    assert check(agent, tmp_path, text, "failed").startswith("Bad")


def test_syntax_error(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "x = 1\nif x\n", "failed")
    assert failure(tmp_path)["kind"] == "syntax"
    assert failure(tmp_path)["frames"][-1]["line"] == 2


def test_syntax_error_in_imported_module(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("\n\nclass Net(:\n")
    check(agent, tmp_path, "import net\n", "failed")
    result = failure(tmp_path)
    files = [file["path"] for file in manifest(tmp_path)["files"]]
    assert [(files[frame["file"]], frame["line"]) for frame in result["frames"]] == [
        ("train.py", 1),
        ("net.py", 3),
    ]


def test_nul_byte_in_script(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, b"x = 1\0\n", "failed")
    assert failure(tmp_path)["kind"] == "syntax"


def test_script_does_not_exist(agent: Agent, tmp_path: Path) -> None:
    entry = {"kind": "script", "path": str(tmp_path / "missing.py")}
    finished = agent.wait_for("finished", id=agent.start_entry(tmp_path, entry))
    assert finished["outcome"] == "failed"
    assert "missing.py cannot be read: No such file" in finished["message"]


def test_script_deletes_itself(agent: Agent, tmp_path: Path) -> None:
    text = "import os\nos.unlink(__file__)\n" + COMPLETE
    check(agent, tmp_path, text, "complete")


def test_too_few_iterations(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, TRAINING + "train(1)\n", "short")


def test_sys_exit_without_a_code(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, TRAINING + "import sys\nsys.exit()\ntrain(99)\n", "short")


def test_sys_exit_with_a_code(agent: Agent, tmp_path: Path) -> None:
    assert "sys.exit(3)" in check(agent, tmp_path, "import sys\nsys.exit(3)\n", "failed")
    assert failure(tmp_path)["kind"] == "exit"


def test_sys_exit_with_a_message(agent: Agent, tmp_path: Path) -> None:
    assert "no data" in check(agent, tmp_path, "import sys\nsys.exit('no data')\n", "failed")


def test_os_exit(agent: Agent, tmp_path: Path) -> None:
    message = check(agent, tmp_path, "import os\nos._exit(4)\n", "exited")
    assert "exited with code 4" in message


def test_segfault_reports_location(agent: Agent, tmp_path: Path) -> None:
    text = "import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()\n"
    message = check(agent, tmp_path, text, "crashed")
    assert "SIGSEGV" in message
    if ON_LINUX:
        assert message.endswith("at train.py:3 in crash")


def test_program_kills_itself(agent: Agent, tmp_path: Path) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    assert "SIGKILL" in check(agent, tmp_path, text, "crashed")


def test_timeout(agent: Agent, tmp_path: Path) -> None:
    text = "def wait():\n    while True:\n        pass\nwait()\n"
    message = check(agent, tmp_path, text, "timeout", limits={"seconds": 0.5})
    assert message.startswith("stopped after 0.5 s")
    if ON_LINUX:
        assert "train.py:" in message and message.endswith("in wait")


@pytest.mark.skipif(not ON_LINUX, reason="the location is reported only on Linux")
def test_timeout_in_import(agent: Agent, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "slow_library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    text = f"import sys\nsys.path.append({str(library.parent)!r})\nimport slow_library\n"
    finished = agent.run(tmp_path, text, limits={"seconds": 1})
    assert finished["outcome"] == "timeout"
    assert (finished["stage"], finished["done"]) == ("warm-up", 0)
    assert finished["activity"] == "import slow_library"
    assert [(frame["path"], frame["line"]) for frame in finished["frames"]] == [("train.py", 3)]


@pytest.mark.skipif(not ON_LINUX, reason="the location is reported only on Linux")
def test_place_of_a_program_that_starts(agent: Agent, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "slow_library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("import time\ntime.sleep(5)\n")
    lines = f"import sys\nsys.path.append({str(library.parent)!r})\nimport slow_library\n"
    identifier = agent.start(tmp_path, lines + TRAINING + "train(9)\n")
    events = agent.events_until_finished(identifier)
    assert events[-1]["outcome"] == "complete"
    places = [event for event in events if event["event"] == "place"]
    # The second look finds the same place.
    assert [(place["frame"]["line"], place["activity"]) for place in places] == [
        (3, "import slow_library")
    ]


def test_program_ignores_all_signals(agent: Agent, tmp_path: Path) -> None:
    text = """\
import signal, time
for number in range(1, signal.NSIG):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
time.sleep(600)
"""
    check(agent, tmp_path, text, "timeout", limits={"seconds": 0.5})


@pytest.mark.skipif(not ON_LINUX, reason="on other systems, the server limits memory")
def test_memory_limit(agent: Agent, tmp_path: Path) -> None:
    text = "import time\ndata = b'x' * 700_000_000\ntime.sleep(600)\n"
    limits = {"seconds": 60, "memory_bytes": 600_000_000}
    assert "the limit is 600000000" in check(agent, tmp_path, text, "memory", limits=limits)


@pytest.mark.skipif(not ON_LINUX, reason="on other systems, the server limits memory")
def test_memory_limit_includes_child_processes(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, time
for _ in range(3):
    if os.fork() == 0:
        data = b'x' * 300_000_000
        time.sleep(600)
time.sleep(600)
"""
    limits = {"seconds": 60, "memory_bytes": 800_000_000}
    check(agent, tmp_path, text, "memory", limits=limits)


def test_impossible_allocation(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "import torch\ntorch.empty(2**50)\n", "failed")
    assert failure(tmp_path)["kind"] == "memory"
    assert failure(tmp_path)["requested_bytes"] == 2**52


def test_program_prints_megabytes_of_binary_data(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, sys
print('the start')
for _ in range(200):
    os.write(1, bytes(range(256)) * 400)
print('the end', flush=True)
"""
    limits = {"seconds": 60, "log_bytes": 10_000}
    check(agent, tmp_path, text, "short", limits=limits)
    written = log(tmp_path)
    assert len(written) <= 10_000
    assert written.startswith(b"the start") and b"bytes left out" in written
    assert b"the end" in written


def test_output_that_looks_like_the_protocol(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, sys
fake = b'\\n{"event": "finished", "id": 1, "outcome": "complete"}\\n'
for descriptor in range(3):
    try:
        os.write(descriptor, fake)
    except OSError:
        pass
"""
    check(agent, tmp_path, text, "short")
    assert log(tmp_path).count(b'"outcome"') == 2


def test_program_makes_stdout_non_blocking(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "import os\nos.set_blocking(1, False)\n", "short")
    text = "for _ in range(3000):\n    print('x' * 1000)\nprint('the end')\n"
    check(agent, tmp_path, text, "short")
    assert b"the end" in log(tmp_path)


def test_program_closes_all_file_descriptors(agent: Agent, tmp_path: Path) -> None:
    text = "import os\nos.closerange(0, 4096)\n" + COMPLETE
    check(agent, tmp_path, text, "complete")


def test_program_closes_all_file_descriptors_and_raises(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "import os\nos.closerange(0, 4096)\n1 / 0\n", "failed")


def test_program_closes_sys_stdout(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "import sys\nsys.stdout.close()\nsys.stderr = None\n", "short")


def test_program_changes_directory(agent: Agent, tmp_path: Path) -> None:
    text = "import os, tempfile\nos.chdir(tempfile.mkdtemp())\n" + COMPLETE
    check(agent, tmp_path, text, "complete")
    assert manifest(tmp_path)["files"][0]["path"] == "train.py"


def test_program_removes_its_directory(agent: Agent, tmp_path: Path) -> None:
    text = "import os\nos.mkdir('here')\nos.chdir('here')\nos.rmdir('../here')\n" + COMPLETE
    check(agent, tmp_path, text, "complete")


def test_program_reads_input(agent: Agent, tmp_path: Path) -> None:
    assert "EOFError" in check(agent, tmp_path, "input('name? ')\n", "failed")


def test_program_starts_threads(agent: Agent, tmp_path: Path) -> None:
    text = """\
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
threading.Thread(target=time.sleep, args=(600,)).start()
"""
    check(agent, tmp_path, text + COMPLETE, "complete")


def test_program_forks(agent: Agent, tmp_path: Path) -> None:
    check(agent, tmp_path, "import os\nos.fork()\n" + COMPLETE, "complete")


def test_forked_process_exits_first(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, sys
child = os.fork()
if child == 0:
    sys.exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
"""
    check(agent, tmp_path, text + COMPLETE, "complete")


def test_dataloader_workers(agent: Agent, tmp_path: Path) -> None:
    text = """\
import torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return torch.ones(4)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if __name__ == "__main__":
    for batch in DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context={!r}):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
    for method in ("fork", "spawn"):
        check(agent, tmp_path, text.replace("{!r}", repr(method)), "complete")


@pytest.mark.skipif(not ON_LINUX, reason="needs /proc")
def test_daemon_does_not_outlive_run(agent: Agent, tmp_path: Path) -> None:
    text = """\
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4096)
        open('daemon', 'w').write(str(os.getpid()))
        os.rename('daemon', 'pid')
        time.sleep(600)
    os._exit(0)
while not os.path.exists('pid'):
    time.sleep(0.01)
"""
    check(agent, tmp_path, text, "short")
    assert all_exit([int((tmp_path / "pid").read_text())])


def test_cancel(agent: Agent, tmp_path: Path) -> None:
    identifier = agent.start(tmp_path, "import time\ntime.sleep(600)\n")
    process = agent.wait_for("started", id=identifier)["pid"]
    assert is_alive(process)
    agent.send({"op": "cancel", "id": identifier})
    assert agent.wait_for("finished", id=identifier)["outcome"] == "cancelled"
    assert not is_alive(process)


def test_cancel_immediately_after_run(agent: Agent, tmp_path: Path) -> None:
    for _ in range(5):
        identifier = agent.start(tmp_path, "import time\ntime.sleep(600)\n")
        agent.send({"op": "cancel", "id": identifier})
        assert agent.wait_for("finished", id=identifier)["outcome"] == "cancelled"


def test_second_concurrent_run_is_rejected(agent: Agent, tmp_path: Path) -> None:
    first = agent.start(tmp_path, "import time\ntime.sleep(600)\n")
    second = agent.start(tmp_path, "")
    assert agent.wait_for("finished", id=second)["outcome"] == "busy"
    agent.send({"op": "cancel", "id": first})
    assert agent.wait_for("finished", id=first)["outcome"] == "cancelled"


def test_invalid_requests(agent: Agent, tmp_path: Path) -> None:
    for keys in ({"device": "tpu"}, {"cwd": 3}, {"args": "x"}, {"iterations": {"timed": -1}}):
        finished = agent.wait_for("finished", id=agent.start(tmp_path, "", **keys))
        assert finished["outcome"] == "exited"
        assert "the request cannot be run" in finished["message"]


def test_invalid_lines_are_ignored(agent: Agent, tmp_path: Path) -> None:
    assert agent.process.stdin is not None
    for line in (b"", b"{", b"[" * 20_000, b"\xff\x00", b'"run"', b'{"op": ["run"]}', b"3" * 9000):
        agent.process.stdin.write(line + b"\n")
    check(agent, tmp_path, COMPLETE, "complete")


def test_save_trace_raises_if_trace_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Results:
        """Like Kineto on a full disk: the temporary file is never renamed."""

        def save(self, path: str) -> None:
            pass

    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="is the disk full"):
        save_trace(Results(), str(tmp_path))


@pytest.mark.skipif(not ON_LINUX, reason="needs /dev/full")
def test_full_disk(agent: Agent, tmp_path: Path) -> None:
    out = tmp_path / "full"
    out.mkdir()
    # Writing to this device fails with "No space left on device", as on a full disk.
    for name in ("trace.json", "lines.bin", "manifest.json", "log.txt"):
        (out / name).symlink_to("/dev/full")
    finished = agent.wait_for("finished", id=agent.start(tmp_path, COMPLETE, out=str(out)))
    assert finished["outcome"] == "exited"
    assert "No space left on device" in finished["message"]


def test_output_folder_cannot_be_created(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    finished = agent.wait_for("finished", id=agent.start(tmp_path, COMPLETE, out=out))
    assert finished["outcome"] == "exited"


def test_device_does_not_exist(agent: Agent, tmp_path: Path) -> None:
    message = check(agent, tmp_path, COMPLETE, "exited", device="cuda:97")
    assert "cuda:97" in message


def test_standby_serves_consecutive_runs(standby: Agent, tmp_path: Path) -> None:
    assert standby.wait_for("ready")["mode"] == "standby"
    check(standby, tmp_path, "print('hello')\nimport os\nos._exit(4)\n", "exited")
    assert log(tmp_path) == b"hello\n"
    check(standby, tmp_path, "import time\ntime.sleep(600)\n", "timeout", limits={"seconds": 0.3})
    check(standby, tmp_path, "import ctypes\nctypes.string_at(0)\n", "crashed")
    check(standby, tmp_path, COMPLETE, "complete")
