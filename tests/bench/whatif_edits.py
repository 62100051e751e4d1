"""The demo projects with each optimization written by hand, as replacements of text.

Each is what a person would write, and says what the product's own edit should come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# By file: what stands there, and what takes its place.
Replacements = dict[str, list[tuple[str, str]]]


@dataclass
class Case:
    """One optimization of one demo."""

    demo: str
    name: str
    edit: Replacements
    # What the demo lacks to have something to optimize: made in both versions.
    variant: Replacements = field(default_factory=dict)
    variant_name: str = ""
    # How turns are to be taken where the usual ones do not do.
    turns: dict[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`resnet loader-workers (slow images)`."""
        return f"{self.demo} {self.name}" + (f" ({self.variant_name})" if self.variant_name else "")


# Arguments with which a demo runs as long as it is asked to, and optimizer steps of an iteration.
LONG = {
    "resnet": ["--epochs", "100000"],
    "gpt": ["--steps", "100000000"],
    "seq2seq": ["--epochs", "100000"],
    "dcgan": ["--epochs", "100000"],
    "ncf": ["--epochs", "100000"],
    "bert": ["--epochs", "100000"],
}
STEPS = {"dcgan": 2}

_OPTIMIZERS = {
    "resnet": ["weight_decay=1e-4)"],
    "gpt": ["betas=(0.9, 0.95))"],
    "seq2seq": ["lr=1e-3)"],
    "dcgan": [
        "(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))",
        "(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))",
    ],
    "ncf": ["lr=1e-3)"],
    "bert": ["weight_decay=0.01)"],
}


def _optimizer(demo: str, flag: str) -> Replacements:
    return {"train.py": [(old, f"{old[:-1]}, {flag}=True)") for old in _OPTIMIZERS[demo]]}


def _after(line: str, *more: str) -> tuple[str, str]:
    return (line, "\n".join([line, *more]))


_COMPILE: dict[str, Replacements] = {
    "resnet": {
        "train.py": [
            _after(
                "    model = resnet50(num_classes=1000).to(device)",
                "    model = torch.compile(model)",
            )
        ]
    },
    "gpt": {
        "train.py": [
            _after("    model = GPT(config).to(device)", "    model = torch.compile(model)")
        ]
    },
    "bert": {
        "train.py": [
            ("Trainer(Bert(config), device", "Trainer(torch.compile(Bert(config)), device")
        ]
    },
    "dcgan": {
        "train.py": [
            _after(
                "    discriminator.apply(weights_init)",
                "    generator = torch.compile(generator)",
                "    discriminator = torch.compile(discriminator)",
            )
        ]
    },
    "ncf": {
        "train.py": [
            _after("    model = NeuMF(users, items).to(device)", "    model = torch.compile(model)")
        ]
    },
}

_LAST = "memory_format=torch.channels_last"
_CHANNELS_LAST: dict[str, Replacements] = {
    "resnet": {
        "train.py": [
            (
                "resnet50(num_classes=1000).to(device)",
                f"resnet50(num_classes=1000).to(device, {_LAST})",
            ),
            ("images.to(device, non_blocking=True)", f"images.to(device, {_LAST})"),
        ]
    },
    "dcgan": {
        "train.py": [
            (
                "Generator(args.latent, args.features).to(device)",
                f"Generator(args.latent, args.features).to(device, {_LAST})",
            ),
            (
                "Discriminator(args.features).to(device)",
                f"Discriminator(args.features).to(device, {_LAST})",
            ),
            ("real = real.to(device)", f"real = real.to(device, {_LAST})"),
        ]
    },
}


def _autocast(before: str) -> tuple[str, str]:
    """The lines of `before` under autocast, with its indentation."""
    lines = before.split("\n")
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    head = f"{indent}with torch.autocast(device.type, dtype=torch.bfloat16):"
    return (before, "\n".join([head, *("    " + line if line else line for line in lines)]))


_BFLOAT16: dict[str, Replacements] = {
    "resnet": {
        "train.py": [
            _autocast(
                "            logits = model(images)\n            loss = criterion(logits, labels)"
            )
        ]
    },
    "gpt": {"train.py": [_autocast("        _, loss = model(tokens, targets)")]},
    "seq2seq": {
        "train.py": [
            _autocast(
                "        logits = model(source, target[:, :-1])\n"
                "        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())"
            )
        ]
    },
    "ncf": {"train.py": [_autocast("            loss = criterion(model(user, item), label)")]},
    "bert": {
        "train.py": [
            (
                "                loss = self.loss(batch) / self.accumulate",
                "                with torch.autocast(self.device.type, dtype=torch.bfloat16):\n"
                "                    loss = self.loss(batch) / self.accumulate",
            )
        ]
    },
}

# What is dropped is what the prediction's lines say: the calls of the blocks.
_CHECKPOINT = "from torch.utils.checkpoint import checkpoint\n"
_RECOMPUTE: dict[str, Replacements] = {
    "gpt": {
        "model.py": [
            (
                "from torch.nn import functional as F\n",
                f"from torch.nn import functional as F\n{_CHECKPOINT}",
            ),
            (
                "            x = block(x)",
                "            x = checkpoint(block, x, use_reentrant=False)",
            ),
        ]
    },
}

_WORKERS: dict[str, Replacements] = {
    "ncf": {
        "train.py": [
            (
                "batch_size=args.batch_size, shuffle=True)",
                "batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)",
            )
        ]
    },
    "resnet": {
        "train.py": [
            ("num_workers=args.workers,", "num_workers=1,\n        persistent_workers=True,")
        ]
    },
}
# Loading that waits rather than computes, as from a disk: two cores have room for nothing else.
_SLOW_IMAGES: Replacements = {
    "data.py": [
        ("import torch\n", "import time\n\nimport torch\n"),
        (
            "        return image, index % self.num_classes",
            "        time.sleep(0.01)\n        return image, index % self.num_classes",
        ),
    ],
    # An epoch is long, so that workers are seldom begun anew.
    "train.py": [('"--images", type=int, default=256', '"--images", type=int, default=25600')],
}
# While the other version has its turn, workers load ahead: so many batches are there for nothing.
_AHEAD = {"dropped": 8, "iterations": 12, "rounds": 6}


def cases() -> list[Case]:
    """All that are compared on a CPU."""
    found = [
        Case(demo, f"{flag}-optimizer", _optimizer(demo, flag))
        for flag in ("fused", "foreach")
        for demo in _OPTIMIZERS
    ]
    found += [Case(demo, "compile", edit, turns={"warmup": 8}) for demo, edit in _COMPILE.items()]
    found += [Case(demo, "channels-last", edit) for demo, edit in _CHANNELS_LAST.items()]
    found += [Case(demo, "amp-bf16", edit) for demo, edit in _BFLOAT16.items()]
    found += [Case(demo, "recompute", edit) for demo, edit in _RECOMPUTE.items()]
    found.append(Case("ncf", "loader-workers", _WORKERS["ncf"], turns=_AHEAD))
    found.append(
        Case("resnet", "loader-workers", _WORKERS["resnet"], _SLOW_IMAGES, "slow images", _AHEAD)
    )
    return found


def edited(project: Path, replacements: Replacements) -> None:
    """Makes the replacements in a copy of a demo. Each must be found exactly once."""
    for name, pairs in replacements.items():
        path = project / name
        text = path.read_text()
        for old, new in pairs:
            if text.count(old) != 1:
                raise ValueError(f"{name} has {text.count(old)} times what is replaced: {old!r}")
            text = text.replace(old, new)
        path.write_text(text)
