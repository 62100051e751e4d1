"""Profiles the programs of this folder with the real binary and holds them to `expectations.json`.

    tests/gpu/simulated/run python tests/gpu/programs/check.py RIDGELINE PYTHON [PROGRAM…]

RIDGELINE is the binary, PYTHON an interpreter with torch for CUDA. Of each program: at least 99% of
kernel time reaches a line, the loop is the one marked `# the training loop`, and each line that is
named in `kernels` has kernels. `devices` is how many GPUs it needs, `notes` what a note holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LONGEST_SECONDS = 300
MARK = "# the training loop"
COVERAGE = 0.99


def profile(ridgeline: str, python: str, program: str, devices: int) -> dict[str, Any] | str:
    """The program's profile, or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-program-") as folder:
        # A project of its own, so that nothing of another one belongs to it.
        script = Path(folder) / program
        script.write_text((HERE / program).read_text())
        written = Path(folder) / "profile.json"
        command = [ridgeline, "profile", str(script), "--python", python, "--json", str(written)]
        environment = {**os.environ, "SIMGPU_COUNT": str(devices)}
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS
        )
        if ended.returncode != 0 or not written.exists():
            return f"ended with {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-1500:]}"
        found: dict[str, Any] = json.loads(written.read_text())
        return found


def mistakes(program: str, expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is not as it should be."""
    text = (HERE / program).read_text().splitlines()
    wrong = []
    if found["device"]["kind"] != "cuda":
        wrong.append(f"it ran on {found['device']['name']}")
    if found["coverage"]["time"] < COVERAGE:
        wrong.append(f"{found['coverage']['time']:.1%} of kernel time reached a line")
    loop = found["iteration"]["loop"]
    if loop is None or MARK not in text[loop["line"] - 1]:
        wrong.append(f"the loop is {loop}")
    with_kernels = {
        text[line["line"] - 1].strip()
        for line in found["lines"]
        if line["device"] and line["device"]["kernel_ms"] > 0
    }
    missing = [line for line in expected["kernels"] if line not in with_kernels]
    wrong += [f"no kernel at: {line}" for line in missing]
    note = expected.get("notes")
    wrong += [f"note: {one}" for one in found["notes"] if note is None or note not in one]
    if note is not None and not any(note in one for one in found["notes"]):
        wrong.append(f"no note says {note!r}")
    return wrong


def main() -> int:
    ridgeline, python, *programs = sys.argv[1:]
    expectations = json.loads((HERE / "expectations.json").read_text())
    failed = 0
    for program in programs or expectations:
        expected = expectations[program]
        found = profile(ridgeline, python, program, expected.get("devices", 1))
        wrong = [found] if isinstance(found, str) else mistakes(program, expected, found)
        failed += bool(wrong)
        print(f"{program}: {'ok' if not wrong else '; '.join(wrong)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
