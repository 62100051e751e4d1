"""Profiles well-written programs (`false_alarms/`: models of timm and transformers, and plain ones
of many kinds, trained as usual), and prints every finding.

    python tests/bench/false_alarms.py [--ridgeline FILE] [--python FILE] [--only NAME]

The Python needs torch, timm and transformers. Nothing is downloaded, because all weights are
random. The script does not judge the findings. Whoever changes a rule reads the output and checks
whether each finding is true and worth acting on.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).with_name("false_alarms")

TIMM = {
    "resnet18": 96,
    "resnet50d": 64,
    "mobilenetv3_small_100": 96,
    "efficientnet_b0": 64,
    "vit_tiny_patch16_224": 224,
    "convnext_atto": 96,
    "densenet121": 64,
    "regnetx_002": 96,
    "mixer_s32_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "vgg11_bn": 64,
}
MASKED = ["bert", "roberta", "electra", "albert", "distilbert"]
NEXT = ["gpt2", "llama", "mistral", "opt"]
OTHERS = [
    "translation",
    "speech",
    "detection",
    "contrastive",
    "minigpt",
    "recurrent",
    "graph_network",
    "diffusion",
    "recommender",
    "adversarial",
    "segmentation",
]


def programs() -> dict[str, list[str]]:
    """Returns the script and arguments of each program, by the model's name."""
    found = {
        name: ["images.py", "--model", name, "--size", str(size)] for name, size in TIMM.items()
    }
    found |= {name: ["masked_words.py", "--model", name] for name in MASKED}
    found |= {name: ["next_words.py", "--model", name] for name in NEXT}
    return found | {name: [f"{name}.py"] for name in OTHERS}


def profile(ridgeline: str, python: str, script: Path, arguments: list[str]) -> dict[str, Any]:
    """Returns the JSON output of `ridgeline profile` for one program."""
    command = [ridgeline, "profile", str(script), "--python", python, "--json", "-"]
    command += ["--", *arguments] if arguments else []
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode:
        raise RuntimeError(result.stderr.strip() or f"exit code {result.returncode}")
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def format_finding(finding: dict[str, Any]) -> str:
    """Formats a finding on one line, without its explanation."""
    keys = [key for key in finding if key not in ("why", "rule", "message", "related")]
    facts = ", ".join(f"{key} {finding[key]}" for key in keys if finding[key] is not None)
    return f"  {finding.get('rule')}: {finding.get('message')} ({facts})"


def main() -> None:
    """Profiles all models, one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ridgeline", default="target/release/ridgeline")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", nargs="+", help="only these models")
    parser.add_argument("--keep", type=Path, help="write the scripts to this folder and keep them")
    args = parser.parse_args()
    total = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, (file, *arguments) in programs().items():
            if args.only and name not in args.only:
                continue
            folder = (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            script = Path(shutil.copy(SCRIPTS / file, folder / "train.py"))
            try:
                document = profile(args.ridgeline, args.python, script, arguments)
            except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
                print(f"{name}: {error}")
                continue
            findings = document.get("findings")
            if findings is None:
                sys.exit(f"{args.ridgeline} reports no findings: build it from this checkout")
            total += len(findings)
            print(f"{name}: {len(findings)} findings", flush=True)
            for finding in findings:
                print(format_finding(finding), flush=True)
    print(f"{total} findings")


if __name__ == "__main__":
    main()
