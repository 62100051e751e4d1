"""Measures the times of expressions within a line: how exact they are, and what they cost.

    python tests/bench/expressions.py [--rounds 40] [--python PYTHON_WITH_TORCH]

First profiles a program whose expressions take known times, and prints the error of each share of
its line. Then runs each demo project with its iterations in turns: without the line clock, with
it, and with expressions as well, and prints the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

# Each line of `forward` has a comment with the times of its expressions in relation to each other,
# in the order of their text. The backward pass of `wait` takes twice its time; that of a condition
# does not run.
KNOWN = """
import time
import torch
from torch import nn

class Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ms):
        ctx.ms = ms
        time.sleep(ms / 1000)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.ms / 1000)
        return gradient, None

def wait(x, ms):
    return Wait.apply(x, ms)

def decorated(function):
    return lambda x, ms: function(x, ms)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.conv = lambda x: wait(x, 10)
        self.norm = lambda x: wait(x, 20)
        self.act = lambda x: wait(x, 40)

    def forward(self, x):
        x = x * self.weight
        x = self.act(self.norm(self.conv(x)))  # 40 20 10
        x = wait(x, 10) + wait(x, 30)  # 10 0 30
        x = sum([wait(x, ms) for ms in (20, 20)])  # 0 0 40
        x = wait(x, 20) if wait(x, 10).numel() else wait(x, 90)  # 60 10 0
        x = decorated(wait)(x, 20) + (y := wait(x, 10))  # 0 20 0 10
        x = (lambda x: wait(wait(x, 10), 20))(x)  # 20 10
        return x.sum() + y.sum()

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(12):
    optimizer.zero_grad()
    net(torch.randn(8)).backward()
    optimizer.step()
"""

TURNS = """
import os, runpy, statistics, sys, time
from pathlib import Path
from torch.optim import optimizer
agent, script, steps, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path[:0] = [agent, os.path.dirname(script)]
from ridgeline_agent.patches.overlay import Overlay
from ridgeline_agent.program.sources import Sources, UserCode
from ridgeline_agent.record.expressions import Expressions
from ridgeline_agent.record.line_clock import EventLog, line_clock

folder = os.path.dirname(script)
sources = Sources(UserCode(folder, [folder], [], []), Overlay(folder, {}))
def clock(expressions):
    return line_clock(EventLog(10**7), sources, expressions)
clocks = {"off": None, "lines": clock(None), "expressions": clock(Expressions())}
TURN = 3
times = {name: [] for name in clocks}
order, state = list(clocks), {"steps": 0, "iterations": -TURN, "began": None}
def stepped(*_):
    state["steps"] += 1
    if state["steps"] % steps:
        return
    now = time.perf_counter_ns()
    done, began = state["iterations"], state["began"]
    turn, within = divmod(done, TURN)
    name = order[turn % len(order)]
    # The first iteration of a turn is not counted.
    if done >= 0 and within > 0:
        times[name].append(now - began)
    if done >= 0 and within == TURN - 1 and clocks[name]:
        clocks[name].stop()
    state["iterations"] += 1
    turn, within = divmod(state["iterations"], TURN)
    if turn >= rounds * len(order):
        off = statistics.median(times["off"])
        print(*(statistics.median(times[one]) / off for one in order[1:]), off / 1e6,
              file=sys.__stdout__, flush=True)
        os._exit(0)
    following = clocks[order[turn % len(order)]]
    if turn >= 0 and within == 0 and following:
        following.start()
    state["began"] = time.perf_counter_ns()
optimizer.register_optimizer_step_post_hook(stepped)
sys.stdout = open(os.devnull, "w")
sys.argv = [script]
while True:
    runpy.run_path(script, run_name="__main__")
"""


def print_errors(binary: str, python: str) -> None:
    with tempfile.TemporaryDirectory() as work:
        script, out = Path(work) / "train.py", Path(work) / "profile.json"
        script.write_text(KNOWN)
        environment = {**os.environ, "RIDGELINE_CACHE_DIR": work + "/cache"}
        command = [binary, "profile", script, "--python", python, "--json", out]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        lines = json.loads(out.read_text())["lines"]
    worst = 0.0
    for number, text in enumerate(KNOWN.splitlines(), 1):
        code, _, marks = text.partition("  # ")
        if not marks:
            continue
        known = [float(mark) for mark in marks.split()]
        line = next(line for line in lines if line["line"] == number)
        shares = [one["total_ms"] / line["total_ms"] for one in line["expressions"]]
        errors = [share - ms / sum(known) for share, ms in zip(shares, known, strict=True)]
        worst = max([worst, *(abs(error) for error in errors)])
        total = sum(shares)
        print(
            f"{code.strip():60} shares {' '.join(f'{share:.3f}' for share in shares)}  "
            f"off by {' '.join(f'{error:+.3f}' for error in errors)}  sum {total:.3f}"
        )
    print(f"largest error of a share: {worst:.3f}")


def print_overhead(python: str, rounds: int, demos: list[str]) -> None:
    for demo in demos:
        script = REPOSITORY / "demo-projects" / demo / "train.py"
        steps = {"dcgan": 2}.get(demo, 1)
        command = [python, "-c", TURNS, REPOSITORY / "gpu/agent", script, str(steps), str(rounds)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        lines, expressions, off_ms = (float(part) for part in result.stdout.split())
        print(
            f"{demo:8} {off_ms:8.1f} ms an iteration; line clock {lines:.3f} times, "
            f"with expressions {expressions:.3f} times"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/ridgeline"))
    parser.add_argument("demos", nargs="*", default=["gpt", "seq2seq", "ncf", "dcgan"])
    args = parser.parse_args()
    print_errors(args.binary, args.python)
    print_overhead(args.python, args.rounds, args.demos)


if __name__ == "__main__":
    main()
