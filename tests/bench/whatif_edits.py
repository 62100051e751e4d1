"""The demo projects with each optimization written by hand, as text replacements.

Each edit is what a person would write, and what Ridgeline's own edit should be equivalent to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

# By file: the old text and the new text.
Replacements = dict[str, list[tuple[str, str]]]


@dataclass
class Case:
    """One optimization of one demo."""

    demo: str
    name: str
    # Empty if Ridgeline makes the edit (`ridgeline whatif --measure`).
    edit: Replacements
    # Changes in both versions that give the demo something to optimize.
    variant: Replacements = field(default_factory=dict)
    variant_name: str = ""
    # Arguments for alternating runs, where the defaults do not work.
    turns: dict[str, int] = field(default_factory=dict)
    # The factor by which the edit increases the samples per iteration.
    samples: int = 1

    @property
    def title(self) -> str:
        """Returns a title such as `resnet loader-workers (slow images)`."""
        return f"{self.demo} {self.name}" + (f" ({self.variant_name})" if self.variant_name else "")


# Arguments with which a demo runs as long as needed, and the optimizer steps per iteration.
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
    """Wraps the lines of `before` in autocast, with their indentation."""
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

# The prediction chooses the lines to recompute, so Ridgeline makes this edit itself.
_RECOMPUTED = ("gpt", "bert", "resnet")
# If each run draws new sentences, their memory differs between runs.
_SAME_SENTENCES: Replacements = {
    "train.py": [
        (
            "    args = parser.parse_args()\n",
            "    args = parser.parse_args()\n    torch.manual_seed(0)\n",
        )
    ]
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
# Loading that waits instead of computing, as from a disk, because two cores have no room for more
# work.
_SLOW_IMAGES: Replacements = {
    "data.py": [
        ("import torch\n", "import time\n\nimport torch\n"),
        (
            "        return image, index % self.num_classes",
            "        time.sleep(0.01)\n        return image, index % self.num_classes",
        ),
    ],
    # With long epochs, workers are rarely restarted.
    "train.py": [('"--images", type=int, default=256', '"--images", type=int, default=25600')],
}
# Workers prefetch during the other version's turn, so the first batches of a turn take no time to
# load.
_PREFETCHED = {"dropped": 8, "iterations": 12, "rounds": 6}


# Optimizations that only show on a GPU. The handwritten attention is what the fused kernel
# replaces.
_ATTENTION = """        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
"""
_HANDWRITTEN_ATTENTION = """        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        y = F.dropout(weights, self.dropout, self.training) @ v
"""
_WITH_HANDWRITTEN_ATTENTION: Replacements = {"model.py": [(_ATTENTION, _HANDWRITTEN_ATTENTION)]}
_FUSED: Replacements = {"model.py": [(_HANDWRITTEN_ATTENTION, _ATTENTION)]}
_FLOAT16: Replacements = {
    "train.py": [
        ("    model.train()\n", '    scaler = torch.amp.GradScaler("cuda")\n    model.train()\n'),
        (
            "        _, loss = model(tokens, targets)\n        loss.backward()\n",
            "        with torch.autocast(device.type, dtype=torch.float16):\n"
            "            _, loss = model(tokens, targets)\n"
            "        scaler.scale(loss).backward()\n        scaler.unscale_(optimizer)\n",
        ),
        ("        optimizer.step()\n", "        scaler.step(optimizer)\n        scaler.update()\n"),
    ]
}
_TF32: Replacements = {
    "train.py": [_after("    config = Config()", '    torch.set_float32_matmul_precision("high")')]
}
_GRAPHS: Replacements = {
    "train.py": [
        _after(
            "    model = GPT(config).to(device)",
            '    model = torch.compile(model, mode="reduce-overhead")',
        )
    ]
}


def _copies(count: int) -> Replacements:
    """Trains several copies of the model at once, through `torch.func`."""
    return {
        "train.py": [
            (
                "    model = NeuMF(users, items).to(device)\n",
                f"    models = [NeuMF(users, items).to(device) for _ in range({count})]\n"
                "    parameters, buffers = torch.func.stack_module_state(models)\n"
                "    model = models[0]\n\n"
                "    def call(parameters, buffers, user, item):\n"
                "        state = (parameters, buffers)\n"
                "        return torch.func.functional_call(model, state, (user, item))\n\n",
            ),
            ("torch.optim.Adam(model.parameters()", "torch.optim.Adam(list(parameters.values())"),
            (
                "            loss = criterion(model(user, item), label)\n",
                "            every = torch.vmap(call, (0, 0, None, None))\n"
                "            logits = every(parameters, buffers, user, item)\n"
                f"            loss = {count} * criterion(logits, label.expand_as(logits))\n",
            ),
        ]
    }


def gpu_cases(copies: int) -> list[Case]:
    """Returns all cases for one GPU. `copies` is the number of models trained at once."""
    in_both = [("gpt", "amp-bf16"), ("gpt", "fused-optimizer"), ("bert", "fused-optimizer")]
    in_both += [("gpt", "compile"), ("resnet", "channels-last"), ("gpt", "recompute")]
    found = [case for case in cases() if (case.demo, case.name) in in_both]
    return [
        *found,
        Case("gpt", "amp-fp16", _FLOAT16),
        Case("gpt", "tf32", _TF32),
        Case("gpt", "cuda-graphs", _GRAPHS),
        Case("gpt", "fused-attention", _FUSED, _WITH_HANDWRITTEN_ATTENTION, "attention by hand"),
        Case("ncf", "horizontal-fusion", _copies(copies), samples=copies),
    ]


def cases() -> list[Case]:
    """Returns all cases for the CPU."""
    found = [
        Case(demo, f"{flag}-optimizer", _optimizer(demo, flag))
        for flag in ("fused", "foreach")
        for demo in _OPTIMIZERS
    ]
    found += [Case(demo, "compile", edit, turns={"warmup": 8}) for demo, edit in _COMPILE.items()]
    found += [Case(demo, "channels-last", edit) for demo, edit in _CHANNELS_LAST.items()]
    found += [Case(demo, "amp-bf16", edit) for demo, edit in _BFLOAT16.items()]
    found += [Case(demo, "recompute", {}) for demo in _RECOMPUTED]
    found.append(Case("seq2seq", "recompute", {}, _SAME_SENTENCES, "same sentences"))
    found.append(Case("ncf", "loader-workers", _WORKERS["ncf"], turns=_PREFETCHED))
    found.append(
        Case(
            "resnet", "loader-workers", _WORKERS["resnet"], _SLOW_IMAGES, "slow images", _PREFETCHED
        )
    )
    return found


def apply_edit(project: Path, replacements: Replacements) -> None:
    """Makes the replacements in a copy of a demo. Each must be found exactly once."""
    for name, pairs in replacements.items():
        path = project / name
        text = path.read_text()
        for old, new in pairs:
            if text.count(old) != 1:
                raise ValueError(f"{name} has {text.count(old)} times what is replaced: {old!r}")
            text = text.replace(old, new)
        path.write_text(text)
