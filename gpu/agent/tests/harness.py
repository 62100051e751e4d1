"""Runs a script under the recorder in this process, as a run does: `harness.py REQUEST`.

REQUEST is the JSON of a `run` request. The last line that is printed to the real standard output
is `finished` with the outcome.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ridgeline_agent.recorder import Recorder
from ridgeline_agent.spec import RunSpec


class PrintingHost:
    """Prints what the server would be told."""

    def progress(self, stage: str, done: int, total: int) -> None:
        print("progress", stage, done, total, flush=True)

    def finish(self, outcome: str, message: str | None = None) -> NoReturn:
        print("finished", outcome, message or "", flush=True)
        os._exit(0)


def main() -> None:
    spec = RunSpec.from_json(json.loads(sys.argv[1]))
    os.makedirs(spec.out, exist_ok=True)
    host = PrintingHost()
    script = spec.entry.target
    os.chdir(spec.cwd)
    sys.argv = [script, *spec.args]
    sys.path[0] = os.path.dirname(script)
    recorder = Recorder(spec, host)
    recorder.install()
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
        module = types.ModuleType("__main__")
        module.__file__ = script
        sys.modules["__main__"] = module
        exec(code, module.__dict__)
    except BaseException as error:
        recorder.failed(error)
        host.finish("failed", repr(error))
    host.finish(recorder.ended())


main()
