"""The first commands of a new user with a GPU: each succeeds and names the GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from checks import REPOSITORY
from recorded import Setting, isolated_folders

COMMAND_SECONDS = 300


def check_first_use(setting: Setting, gpu_name: str) -> None:
    """`doctor`, `demo`, two profiles, `compare`, `predict`, `check` and `whatif --measure`."""
    checks = setting.checks
    gpu_label = f"{gpu_name} (simulated)" if checks.simulated else gpu_name
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        project = Path(folder) / "gpt"
        shutil.copytree(REPOSITORY / "demo-projects/gpt", project)
        settings = f"python = {json.dumps(setting.python)}\n"
        (project / "ridgeline.toml").write_text(settings)

        def output_of(name: str, wanted: str, *arguments: object) -> str:
            """Runs a command that must succeed and print `wanted`. Returns its output."""
            try:
                result = subprocess.run(
                    [setting.binary, *arguments],
                    env=isolated_folders(cache),
                    capture_output=True,
                    text=True,
                    timeout=COMMAND_SECONDS,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                checks.add(name, False, str(error), "output")
                return ""
            if result.returncode != 0:
                output = f"exit {result.returncode}: {(result.stderr or result.stdout)[-600:]}"
                checks.add(name, False, output, "exit 0")
                return result.stdout
            passed = wanted in result.stdout
            checks.add(name, passed, wanted if passed else result.stdout[:600], f"{wanted!r}")
            return result.stdout

        with checks.row("driver"):
            output = output_of("doctor shows the GPU", gpu_label, "doctor", project)
            ready = any(
                line.startswith("CUDA driver") and "ready" in line for line in output.splitlines()
            )
            checks.add("doctor: CUDA driver", ready, "ready" if ready else output[:600], "ready")
        with checks.row("nvml"):
            check_nvml(setting, output)
        with checks.row("first-use"):
            report = Path(folder) / "report.html"
            output_of("demo", gpu_label, "demo", "--python", setting.python, "--report", report)
            named = report.exists() and gpu_label in report.read_text()
            checks.add("demo: report", named, gpu_label if named else "missing", gpu_label)
            for number in ("first", "second"):
                output_of(f"{number} profile", gpu_label, "profile", project)
            output_of("compare", gpu_label, "compare", "last~1", "last", "--project", project)
            output_of(
                "predict --gpu all", f"measured on {gpu_name}", "predict", project, "--gpu", "all"
            )
            output_of("check", gpu_label, "check", project, "--max-time", "60000")
            measured = output_of(
                "whatif --measure",
                f"on {gpu_label}",
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
    checks.add("doctor: NVML", found, version or "missing", "a version")
    if checks.simulated or shutil.which("nvidia-smi") is None:
        return
    result = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    versions = set(result.stdout.split())
    checks.add(
        "doctor: NVML version matches nvidia-smi",
        version in versions,
        version,
        str(sorted(versions)),
    )
