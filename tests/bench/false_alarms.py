"""Trains models of timm and transformers from plain scripts, and prints every finding.

    python tests/bench/false_alarms.py [--ridgeline FILE] [--python FILE] [--only NAME]

The Python needs torch, timm and transformers; nothing is downloaded, all weights are random.
Nothing is judged here: whoever changes a rule reads what is printed, and asks of each finding
whether it is true and worth it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMM = {
    "resnet18": 96,
    "resnet50d": 96,
    "mobilenetv3_small_100": 96,
    "efficientnet_b0": 96,
    "vit_tiny_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "convnext_atto": 96,
    "densenet121": 64,
    "regnetx_002": 96,
    "mixer_s32_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "vgg11_bn": 64,
}
# The configuration's class, the model's class, and the sizes that make it small.
SMALL = "hidden_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000"
TRANSFORMERS = {
    "bert": ("BertConfig", "BertForMaskedLM", f"{SMALL}, intermediate_size=256"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", "n_embd=128, n_layer=2, n_head=4, vocab_size=1000"),
    "roberta": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        f"{SMALL}, intermediate_size=256, max_position_embeddings=140",
    ),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        "dim=128, n_layers=2, n_heads=4, hidden_dim=256, vocab_size=1000",
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", f"{SMALL}, intermediate_size=256"),
    "opt": ("OPTConfig", "OPTForCausalLM", f"{SMALL}, ffn_dim=256, word_embed_proj_dim=128"),
    "albert": (
        "AlbertConfig",
        "AlbertForMaskedLM",
        f"{SMALL}, intermediate_size=256, embedding_size=64",
    ),
    "electra": (
        "ElectraConfig",
        "ElectraForMaskedLM",
        f"{SMALL}, intermediate_size=256, embedding_size=64",
    ),
}

IMAGES = """\
import timm
import torch
from torch import nn

model = timm.create_model("{name}", num_classes=10)
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for step in range(12):
    images = torch.randn(4, 3, {size}, {size})
    labels = torch.randint(10, (4,))
    loss = criterion(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""

TEXTS = """\
import torch
from transformers import {config}, {model}

model = {model}({config}({sizes}))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(12):
    tokens = torch.randint(5, 1000, (4, 128))
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def scripts() -> dict[str, str]:
    """The text of each script, by the model's name."""
    texts = {name: IMAGES.format(name=name, size=size) for name, size in TIMM.items()}
    for name, (config, model, sizes) in TRANSFORMERS.items():
        texts[name] = TEXTS.format(config=config, model=model, sizes=sizes)
    return texts


def profile(ridgeline: str, python: str, script: Path) -> dict[str, Any]:
    """What `ridgeline profile` says of one script."""
    command = [ridgeline, "profile", str(script), "--python", python, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def shown(finding: dict[str, Any]) -> str:
    """A finding on one line, its explanation left out."""
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
    parser.add_argument("--only", help="one model")
    parser.add_argument("--keep", type=Path, help="write the scripts here, and leave them")
    args = parser.parse_args()
    total = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, text in scripts().items():
            if args.only not in (None, name):
                continue
            folder = (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            script = folder / "train.py"
            script.write_text(text)
            try:
                document = profile(args.ridgeline, args.python, script)
            except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
                print(f"{name}: {error}")
                continue
            findings = document.get("findings")
            if findings is None:
                sys.exit(f"{args.ridgeline} tells no findings: build it from here")
            total += len(findings)
            print(f"{name}: {len(findings)} findings", flush=True)
            for finding in findings:
                print(shown(finding), flush=True)
    print(f"{total} findings")


if __name__ == "__main__":
    main()
