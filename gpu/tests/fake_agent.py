"""A fake agent that misbehaves according to a scenario: `fake_agent.py SCENARIO STATE_FOLDER`."""

import json
import os
import signal
import subprocess
import sys
import time

SCENARIO, STATE = sys.argv[1], sys.argv[2]


def send(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def ready(**fields):
    facts = {"protocol": 1, "python": "3.12.1", "torch": "2.15.0", "cuda": False, "mode": "fork"}
    send(event="ready", **{**facts, **fields})


def finished(run, outcome="complete", **fields):
    send(event="finished", id=run, outcome=outcome, message=None, signal=None, code=0, **fields)


def starts():
    """Counts how many agents were started in this folder, including this one."""
    path = os.path.join(STATE, "starts")
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path)


def record(line):
    with open(os.path.join(STATE, "requests"), "a") as file:
        file.write(line)


def run(message, nth_start):
    number = message["id"]
    if SCENARIO == "dies_before_it_begins" and nth_start == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "says_nothing":
        return
    if SCENARIO == "finishes_without_start":
        return finished(number, "busy")
    send(event="started", id=number, pid=os.getpid())
    if SCENARIO == "dies_in_the_run":
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "hangs":
        return
    if SCENARIO == "obeys_cancel":
        return
    if SCENARIO == "floods":
        while True:
            sys.stdout.write(f'{{"event":"progress","id":{number},"stage":"timing"}}\n' * 1000)
    if SCENARIO == "garbage":
        sys.stdout.buffer.write(b"\xff\xfe\0 no json\n")
        sys.stdout.buffer.write(b"[" * 20000 + b"\n" + b"x" * 3000000 + b"\n")
        send(event="from the future", id=number)
        send(event="progress", id=number, stage="no such stage")
        send(event="progress", id=number, stage="timing", done=-1, total=10**30)
        send(event="finished", id=number, outcome="no such outcome")
        send(event="finished", id="seven", outcome="complete")
    if SCENARIO == "only_garbage":
        while True:
            sys.stdout.write("noise\n" * 1000)
    if SCENARIO == "endless_line":
        while True:
            sys.stdout.write("x" * 65536)
    if SCENARIO == "leaves_orphans":
        orphan = (
            "import time, os; "
            f"open(os.path.join({STATE!r}, 'orphan-%d' % os.getpid()), 'w'); time.sleep(600)"
        )
        parent = (
            "import subprocess, sys; "
            f"subprocess.Popen([sys.executable, '-c', {orphan!r}], start_new_session=True)"
        )
        subprocess.run([sys.executable, "-c", parent], check=True)
        while not [name for name in os.listdir(STATE) if name.startswith("orphan-")]:
            time.sleep(0.01)
    send(event="progress", id=number, stage="warm-up", done=1, total=2)
    if SCENARIO == "becomes_standby":
        ready(mode="standby", why="an import started threads")
    if SCENARIO == "late_and_twice":
        finished(number - 1, "failed")
        finished(number)
        finished(number, "crashed")
        send(event="progress", id=number, stage="saving", done=1, total=1)
        return
    finished(number)
    if SCENARIO == "ends_after_each_run":
        sys.exit(0)


def main():
    nth_start = starts()
    if SCENARIO == "never_ready":
        time.sleep(600)
    if SCENARIO == "broken_torch":
        sys.stderr.write("ImportError: libtorch_cpu.so: cannot open shared object file\n")
        sys.exit(1)
    if SCENARIO == "other_protocol":
        ready(protocol=2)
    if SCENARIO == "unusable":
        send(event="unusable", message="this Python has no torch")
    ready(dropped_imports=[{"module": "numba", "why": "there are 3 threads"}])
    for line in sys.stdin:
        record(line)
        message = json.loads(line)
        if message["op"] == "exit":
            return
        if message["op"] == "prepare":
            if SCENARIO == "dies_of_an_import" and message["preimport"]:
                os.kill(os.getpid(), signal.SIGSEGV)
            ready(why="prepared")
        if message["op"] == "cancel" and SCENARIO == "obeys_cancel":
            finished(message["id"], "cancelled")
        if message["op"] == "run":
            run(message, nth_start)


main()
