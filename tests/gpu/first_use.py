"""The first commands of a new user with a GPU: each succeeds and names the GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from checks import REPOSITORY
from recorded import Setting, own_folders

COMMAND_SECONDS = 300


def check_first_use(setting: Setting, gpu_name: str) -> None:
    """`doctor`, `demo`, two profiles, `compare`, `predict`, `check` and `whatif --measure`."""
    checks = setting.checks
    shown = f"{gpu_name} (simulated)" if checks.simulated else gpu_name
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "kept"
        project = Path(folder) / "gpt"
        shutil.copytree(REPOSITORY / "demo-projects/gpt", project)
        settings = f"python = {json.dumps(setting.python)}\n"
        (project / "ridgeline.toml").write_text(settings)

        def said(name: str, wanted: str, *arguments: object) -> str:
            """Runs a command that must succeed and print `wanted`. Returns its output."""
            try:
                ran = subprocess.run(
                    [setting.binary, *arguments],
                    env=own_folders(cache),
                    capture_output=True,
                    text=True,
                    timeout=COMMAND_SECONDS,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                checks.add(name, False, str(error), "an answer")
                return ""
            if ran.returncode != 0:
                told = f"exit {ran.returncode}: {(ran.stderr or ran.stdout)[-600:]}"
                checks.add(name, False, told, "exit 0")
                return ran.stdout
            held = wanted in ran.stdout
            checks.add(name, held, wanted if held else ran.stdout[:600], f"{wanted!r}")
            return ran.stdout

        with checks.row("driver"):
            told = said("doctor names the GPU", shown, "doctor", project)
            ready = any(
                line.startswith("CUDA driver") and "ready" in line for line in told.splitlines()
            )
            checks.add("doctor: CUDA driver", ready, "ready" if ready else told[:600], "ready")
        with checks.row("nvml"):
            check_nvml(setting, told)
        with checks.row("first-use"):
            report = Path(folder) / "report.html"
            said("demo", shown, "demo", "--python", setting.python, "--report", report)
            named = report.exists() and shown in report.read_text()
            checks.add("demo: report", named, shown if named else "not named", shown)
            for number in ("first", "second"):
                said(f"{number} profile", shown, "profile", project)
            said("compare", shown, "compare", "last~1", "last", "--project", project)
            said("predict --gpu all", f"measured on {gpu_name}", "predict", project, "--gpu", "all")
            said("check", shown, "check", project, "--max-time", "60000")
            measured = said(
                "whatif --measure",
                f"on {shown}",
                "whatif",
                project,
                "--measure",
                "fused-optimizer",
            )
            pairs = [line for line in measured.splitlines() if " measured (" in line]
            checks.add("whatif: measured", len(pairs) == 1, "; ".join(pairs), "a measurement")


def check_nvml(setting: Setting, doctor: str) -> None:
    """Checks that NVML's version matches nvidia-smi, if that is installed."""
    checks = setting.checks
    version = next((line[14:] for line in doctor.splitlines() if line.startswith("NVML")), "")
    found = bool(version) and version[0].isdigit()
    checks.add("doctor: NVML", found, version or "not named", "a version")
    if checks.simulated or shutil.which("nvidia-smi") is None:
        return
    ran = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    versions = set(ran.stdout.split())
    checks.add("doctor: NVML as nvidia-smi", version in versions, version, str(sorted(versions)))
