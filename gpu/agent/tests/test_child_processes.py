"""Programs that train in child processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from agent_driver import Agent, all_exit, log, manifest
from ridgeline_agent.system import process_tree

TRAIN = """\
import os, sys, time
import torch
import torch.multiprocessing as mp

def train(rank=0, iterations=10_000):
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(iterations):  # the loop
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()

def evaluate():
    model = torch.nn.Linear(4, 2).eval()
    while True:
        with torch.no_grad():
            model(torch.randn(8, 4))

"""
MAIN = "if __name__ == '__main__':\n"
LOOP_LINE = TRAIN[: TRAIN.index("# the loop")].count("\n") + 1


def check_complete(agent: Agent, folder: Path, body: str, trainers: int = 1) -> dict[str, Any]:
    """Runs a program that trains in child processes and checks that one of them was recorded."""
    lines = [MAIN, *(f"    {line}\n" for line in body.strip().splitlines())]
    before = process_tree.descendants(agent.process.pid)
    finished = agent.run(folder, TRAIN + "".join(lines))
    assert finished["outcome"] == "complete", (finished, log(folder).decode())
    assert (finished["signal"], finished["code"]) == (None, 0)
    result = manifest(folder)
    assert result["status"] == "complete"
    assert result["iterations"]["found_by"] == "optimizer"
    assert len(result["iterations"]["timed_ns"]) == 2 and len(result["iterations"]["profiled"]) == 1
    assert result["loop"] == {"file": 0, "line": LOOP_LINE}
    assert result["files"][0]["path"] == "train.py"
    assert result["child_processes"] == trainers
    notes = " ".join(result["notes"])
    assert (f"in {trainers} child processes" if trainers > 1 else "in a child process") in notes
    assert (folder / "out" / "trace.json").exists()
    assert not (folder / "out" / "trainer").exists()
    remaining = set(process_tree.descendants(agent.process.pid)) - set(before)
    # An agent in standby has started a new worker.
    remaining -= {pid for pid in remaining if _is_child_of(pid, agent.process.pid)}
    assert all_exit(list(remaining))
    assert b"Traceback" not in log(folder), log(folder).decode()
    return result


def _is_child_of(process: int, parent: int) -> bool:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return False
    return int(fields[1]) == parent


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process(agent: Agent, tmp_path: Path, method: str) -> None:
    body = f"""
mp.set_start_method("{method}")
child = mp.Process(target=train)
child.start()
child.join()
"""
    check_complete(agent, tmp_path, body)


def test_process_with_standby_agent(standby: Agent, tmp_path: Path) -> None:
    check_complete(standby, tmp_path, "mp.Process(target=train).start()")


def test_multiple_processes(agent: Agent, tmp_path: Path) -> None:
    body = """
mp.set_start_method("spawn")
model = torch.nn.Linear(4, 2).share_memory()
children = [mp.Process(target=train, args=(rank,)) for rank in range(2)]
for child in children:
    child.start()
for child in children:
    child.join()
"""
    check_complete(agent, tmp_path, body, trainers=2)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_torch_start_processes(agent: Agent, tmp_path: Path, method: str) -> None:
    body = f"mp.start_processes(train, nprocs=2, start_method='{method}')"
    check_complete(agent, tmp_path, body, trainers=2)


def test_process_pool(agent: Agent, tmp_path: Path) -> None:
    body = """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool:
    list(pool.map(train, range(2)))
"""
    check_complete(agent, tmp_path, body, trainers=2)


def test_process_without_join(agent: Agent, tmp_path: Path) -> None:
    check_complete(agent, tmp_path, "mp.get_context('fork').Process(target=train).start()")


def test_inference_only_process_is_not_recorded(agent: Agent, tmp_path: Path) -> None:
    # The agent waits in case this process starts to train.
    body = """
from ridgeline_agent.record.patches import child_processes
child_processes._MAX_WAIT_NS = 1_000_000_000
mp.get_context("fork").Process(target=evaluate, daemon=True).start()
time.sleep(0.5)
child = mp.get_context("fork").Process(target=train)
child.start()
child.join()
"""
    check_complete(agent, tmp_path, body)


def test_main_process_that_trains_next_to_child(agent: Agent, tmp_path: Path) -> None:
    body = """
mp.get_context("fork").Process(target=evaluate, daemon=True).start()
time.sleep(0.5)
train()
"""
    finished = agent.run(
        tmp_path, TRAIN + MAIN + "".join(f"    {line}\n" for line in body.split("\n"))
    )
    assert finished["outcome"] == "complete", (finished, log(tmp_path).decode())
    assert not any("child process" in note for note in manifest(tmp_path)["notes"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_dataloader_workers_are_not_trainers(agent: Agent, tmp_path: Path, method: str) -> None:
    text = f"""\
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        weight = torch.ones(4, requires_grad=True)
        (weight * index).sum().backward()
        return weight.grad
if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Data(), batch_size=2, num_workers=1, multiprocessing_context="{method}"
    )
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "complete", (finished, log(tmp_path).decode())
    assert manifest(tmp_path)["batch"]["from"] == "loader"
    assert not any("child process" in note for note in manifest(tmp_path)["notes"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_with_too_few_iterations(agent: Agent, tmp_path: Path, method: str) -> None:
    text = TRAIN + MAIN
    text += f"    child = mp.get_context('{method}').Process(target=train, args=(0, 1))\n"
    text += "    child.start(); child.join()\n"
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "short", (finished, log(tmp_path).decode())
    assert manifest(tmp_path)["iterations"]["seen"] == 1
    # Run again with as many iterations as the program has.
    iterations = {"warmup": 0, "timed": 0, "profiled": 1, "found_by": "optimizer"}
    iterations["signals"] = {"first": 0, "every": 1}
    assert agent.run(tmp_path, text, iterations=iterations)["outcome"] == "complete"


RAISING = """\
def fail(rank=0):
    torch.set_num_threads(1)
    weight = torch.ones(4, requires_grad=True)
    for step in range(3):
        {before}
        weight.sum().backward()
    raise FileNotFoundError("no such data")  # here

"""


@pytest.mark.parametrize("before", ["pass", "raise FileNotFoundError('no such data')  # here"])
@pytest.mark.parametrize("start", ["mp.Process(target=fail).start()", "mp.spawn(fail, nprocs=1)"])
def test_process_that_raises(agent: Agent, tmp_path: Path, before: str, start: str) -> None:
    text = TRAIN + RAISING.format(before=before) + MAIN + f"    {start}\n"
    finished = agent.run(tmp_path, text, iterations={"warmup": 9, "timed": 2, "profiled": 1})
    assert finished["outcome"] == "failed", (finished, log(tmp_path).decode())
    assert "no such data" in finished["message"]
    if start.startswith("mp.Process"):
        frame = manifest(tmp_path)["failure"]["frames"][-1]
        assert "# here" in text.splitlines()[frame["line"] - 1]


DISTRIBUTED = """\
import torch.distributed as dist
def worker(rank, file):
    dist.init_process_group("gloo", init_method="file://" + file, rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if rank == 0:
        time.sleep(0.3)
    for step in range(10_000):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()

"""


def test_ddp(agent: Agent, tmp_path: Path) -> None:
    text = TRAIN + DISTRIBUTED + MAIN
    text += f"    mp.spawn(worker, args=({str(tmp_path / 'store')!r},), nprocs=2)\n"
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "complete", (finished, log(tmp_path).decode())
    result = manifest(tmp_path)
    assert result["observed"]["distributed"]["rank"] == 0
    assert any("in 2 child processes" in note and "rank 0" in note for note in result["notes"])


def test_cancel_terminates_child_processes(agent: Agent, tmp_path: Path) -> None:
    text = TRAIN + MAIN
    text += "    child = mp.get_context('spawn').Process(target=time.sleep, args=(600,))\n"
    text += "    child.start(); open('child', 'w').write(str(child.pid)); child.join()\n"
    identifier = agent.start(tmp_path, text)
    end = time.monotonic() + 60
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    child = int((tmp_path / "child").read_text())
    agent.send({"op": "cancel", "id": identifier})
    assert agent.wait_for("finished", id=identifier)["outcome"] == "cancelled"
    assert all_exit([child])


def test_message_mentions_child_processes_without_training(agent: Agent, tmp_path: Path) -> None:
    text = TRAIN + MAIN
    text += "    child = mp.Process(target=evaluate, daemon=True)\n"
    text += "    child.start(); time.sleep(0.5); child.kill()\n"
    finished = agent.run(tmp_path, text)
    assert finished["outcome"] == "short", (finished, log(tmp_path).decode())
    assert "started 1 child process, but none ran a backward pass" in finished["message"]


def test_message_names_script_run_as_subprocess(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import time\ntime.sleep(600)\n")
    text = "import subprocess, sys\nsubprocess.run([sys.executable, 'worker.py'])\n"
    finished = agent.run(tmp_path, text, limits={"seconds": 3})
    assert finished["outcome"] == "timeout", (finished, log(tmp_path).decode())
    assert "It had started worker.py as a subprocess" in finished["message"]


def test_thread_pool_without_shutdown_exits_with_program(agent: Agent, tmp_path: Path) -> None:
    text = """\
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(print, "done")
"""
    assert agent.run(tmp_path, text, limits={"seconds": 20})["outcome"] == "short"
    assert log(tmp_path) == b"done\n"
