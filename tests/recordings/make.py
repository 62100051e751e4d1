"""Renews the recordings in this folder: `python make.py [NAME…]`, with a Python that has torch.

Each folder's `src` is a small project; its `train.py` is run under the agent's recorder. What is
kept is what a stored recording is made of (docs/recording.md), compressed. `demo` is the recorded
run of `ridgeline demo`.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HARNESS = HERE.parent.parent / "gpu" / "agent" / "tests" / "recording.py"
DEMO = HERE.parent.parent / "demo-projects" / "resnet"
LARGEST_BYTES = 500_000


def record(source: Path, folder: Path, **options: object) -> None:
    """Records `source/train.py` into `folder`. `options` are fields of the request."""
    with tempfile.TemporaryDirectory() as out:
        request = {
            "id": 1,
            "out": out,
            "root": str(source),
            "cwd": str(source),
            "entry": {"kind": "script", "path": str(source / "train.py")},
            **options,
        }
        environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            # Busy-waiting threads would take CPU time from working ones.
            "GOMP_SPINCOUNT": "1000",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, str(HARNESS), json.dumps(request)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if "finished complete" not in done.stdout:
            sys.exit(f"{source}: {done.stdout}\n{done.stderr}")
        folder.mkdir(exist_ok=True)
        manifest = json.loads((Path(out) / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")) + "\n")
        for name in ("trace.json", "lines.bin"):
            content = (Path(out) / name).read_bytes()
            # Without name and time, so that equal content gives identical files.
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    print(f"{folder}: {size} bytes, {manifest['notes'] or 'no notes'}")
    if size > LARGEST_BYTES:
        sys.exit(f"{folder} is larger than {LARGEST_BYTES} bytes")


def main() -> None:
    """Renews the named recordings, or all."""
    for source in sorted(HERE.glob("*/src")):
        name = source.parent.name
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        record(source, source.parent)
        if name.startswith("compiled"):
            record(source, source.parent / "eager", eager=True)
    if not sys.argv[1:] or "demo" in sys.argv[1:]:
        record(DEMO, DEMO / "recording", iterations={"timed": 5})


if __name__ == "__main__":
    main()
