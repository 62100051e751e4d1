"""The line clock: at every operator, the logged stack matches Python's stack."""

from __future__ import annotations

import json
import re

from recording import Recording, record

# `mark(n)` prints its call stack and runs an operator that can be found in the trace.
LOOP = """
    import functools, json, sys, threading
    import torch

    def mark(number):
        stack, frame = [], sys._getframe()
        while frame is not None:
            code = frame.f_code
            if code.co_filename == __file__:
                stack.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
            frame = frame.f_back
        print("mark", number, json.dumps(stack[::-1]), flush=True)
        torch.empty(number)

    {body}

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    while True:
        optimizer.zero_grad()
        run()
        weight.sum().backward()
        optimizer.step()
"""


def check(body: str, marks: int = 1) -> Recording:
    """Runs `body`, which defines `run`, in a loop and checks the stacks of the last iteration."""
    indented = body.strip("\n").replace("\n", "\n    ")
    recording = record(LOOP.format(body=indented))
    assert recording.outcome == "complete", recording.printed
    printed = re.findall(r"^mark (\d+) (.*)$", recording.printed, re.M)[-marks:]
    assert len(printed) == marks
    operators = sorted(recording.operators("aten::empty"), key=lambda event: event["ts"])
    threads = [entry["tid"] for entry in recording.manifest["threads"]]
    for number in {number for number, _ in printed}:
        stacks = [json.loads(stack) for marked, stack in printed if marked == number]
        ran = [op for op in operators if op["args"]["Concrete Inputs"][0] == f"[{number}]"]
        for operator, stack in zip(ran[-len(stacks) :], stacks):
            thread = threads.index(operator["tid"])
            measured = recording.stack_at(recording.time_of(operator), thread)
            # `mark` printed the stack before it reached its operator.
            assert measured[:-1] == [tuple(frame) for frame in stack[:-1]], number
            assert measured[-1][0] == stack[-1][0]
    return recording


def test_function() -> None:
    check(
        """
def run():
    mark(1001)
    inner()
def inner():
    mark(1002)
""",
        2,
    )


def test_recursion() -> None:
    check(
        """
def run(depth=3):
    mark(1000 + depth)
    if depth:
        run(depth - 1)
    mark(2000 + depth)
""",
        8,
    )


def test_comprehensions_and_lambdas() -> None:
    check(
        """
def run():
    [mark(1001 + i) for i in range(2)]
    {mark(1003) for i in range(1)}
    (lambda: mark(1004))()
    sorted([2, 1], key=lambda i: mark(1004 + i) or i)
""",
        6,
    )


def test_generators() -> None:
    check(
        """
def numbers():
    mark(1001)
    yield 1
    mark(1002)
    yield from inner()
    mark(1003)
def inner():
    mark(1004)
    yield 2
def run():
    for number in numbers():
        mark(1010 + number)
    mark(1020)
""",
        7,
    )


def test_suspended_generator_survives_iterations() -> None:
    check(
        """
def endless():
    while True:
        mark(1001)
        yield
        mark(1002)
numbers = endless()
def run():
    next(numbers)
    mark(1003)
""",
        3,
    )


def test_throw_into_generator() -> None:
    check(
        """
def catching():
    try:
        yield
    except ValueError:
        mark(1001)
        yield
def run():
    generator = catching()
    next(generator)
    generator.throw(ValueError())
    mark(1002)
    generator.close()
    mark(1003)
""",
        3,
    )


def test_exceptions() -> None:
    check(
        """
def failing(depth):
    if depth == 0:
        raise ValueError
    try:
        failing(depth - 1)
    finally:
        mark(1000 + depth)
def run():
    try:
        failing(3)
    except ValueError:
        mark(1010)
    mark(1011)
""",
        5,
    )


def test_decorators_and_classes() -> None:
    check(
        """
def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        mark(1001)
        return function(*args)
    return wrapper
class Thing:
    @decorated
    def method(self):
        mark(1002)
    @property
    def value(self):
        mark(1003)
def run():
    Thing().method()
    Thing().value
    class Local:
        mark(1004)
""",
        4,
    )


def test_custom_function_backward() -> None:
    check(
        """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mark(1001)
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        mark(1002)
        return gradient * 2
def run():
    Double.apply(torch.ones(2, requires_grad=True)).sum().backward()
""",
        2,
    )


def test_checkpointing() -> None:
    check(
        """
from torch.utils.checkpoint import checkpoint
def block(x):
    mark(1001)
    return x * 2
def run():
    checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
    mark(1002)
""",
        3,
    )


def test_callbacks_from_c() -> None:
    check(
        """
def run():
    list(map(mark, [1001, 1002]))
    functools.reduce(lambda a, b: mark(b), [0, 1003, 1004])
""",
        4,
    )


def test_thread() -> None:
    check(
        """
def work():
    mark(1001)
def run():
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    mark(1002)
""",
        2,
    )


def test_asyncio() -> None:
    check(
        """
import asyncio
async def inner():
    mark(1001)
    await asyncio.sleep(0)
    mark(1002)
async def outer():
    await asyncio.gather(inner(), inner())
def run():
    asyncio.run(outer())
    mark(1003)
""",
        5,
    )


def test_event_limit() -> None:
    recording = record(
        LOOP.format(body="def run():\n        for i in range(10_000):\n            pass"),
        limits={"line_events": 1000},
    )
    assert recording.outcome == "complete", recording.printed
    log = recording.manifest["line_log"]
    assert log["events"] <= 1000
    assert log["dropped"] > 0
    assert len(recording.events()) == log["events"]


def test_time_of_recorder() -> None:
    recording = record(
        """
        import torch
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            net(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        """
    )
    events = recording.events()
    recorder_events = [event for event in events if event[1] == "RECORDER"]
    first = min(event[0] for event in events if event[1] == "ITERATION")
    assert recorder_events and all(
        event[3] >= 1_000 and event[0] - event[3] >= first for event in recorder_events
    )
    # The recorder inspects the inputs of the outermost module after logging its MODULE_ENTER.
    outermost = min(event[0] for event in events if event[1] == "MODULE_ENTER")
    assert any(end - ns < outermost <= end for end, _, _, ns, _ in recorder_events)


def test_library_code_is_not_logged() -> None:
    recording = record(
        """
        import torch, colorsys
        import site_packages_stand_in
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        while True:
            optimizer.zero_grad()
            site_packages_stand_in.helper()
            colorsys.rgb_to_hls(1, 2, 3)
            weight.sum().backward()
            optimizer.step()
        """,
        {"site_packages_stand_in.py": "def helper():\n    pass\n"},
    )
    names = {code["name"] for code in recording.manifest["codes"]}
    assert names == {"<module>", "helper"}


def test_user_packages() -> None:
    files = {
        "lib/site-packages/library/__init__.py": "def helper():\n    pass\n",
        "lib/site-packages/other.py": "def helper():\n    pass\n",
    }
    source = """
        import os, sys
        sys.path.append(os.path.join(os.path.dirname(__file__), "lib", "site-packages"))
        import torch, library, other
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        while True:
            library.helper()
            other.helper()
            weight.sum().backward()
            optimizer.step()
        """
    recording = record(source, files, user_packages=["library"])
    paths = [file["path"] for file in recording.manifest["files"]]
    assert sorted(paths) == ["site-packages/library/__init__.py", "train.py"]


def test_compiled_code_is_attributed_to_calling_line() -> None:
    recording = record(
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(3))
            def forward(self, x):
                return (self.weight * x).sum()
        net = Net()
        compiled = torch.compile(net, backend="eager")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            compiled(torch.ones(3)).backward()
            optimizer.step()
        """
    )
    assert recording.outcome == "complete", recording.printed
    (operator, *_) = recording.operators("aten::sum")
    # Code generated by Dynamo contains only the file and the line of the `def`.
    (frame,) = recording.stack_at(recording.time_of(operator))
    assert frame[0] == "<module>"
