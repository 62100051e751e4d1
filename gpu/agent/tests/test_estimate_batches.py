"""Batches of estimates have the right shapes and load as little data as possible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_driver import Agent, log
from estimate_helpers import complete_estimate, estimate
from ridgeline_agent.program.batch_structure import NotDescribable, describe, make

TRAINING = """\
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
class Images(Dataset):
    loads = 0
    def __len__(self):
        return LENGTH
    def __getitem__(self, index):
        Images.loads += 1
        return torch.rand(3, SIZE, SIZE), index % 10
class Stream(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(SLEEP)
            yield torch.rand(3, SIZE, SIZE), 1
def collate(samples):
    images, labels = zip(*samples)
    names = ["x"] * len(labels)
    return {"images": torch.stack(images), "labels": torch.tensor(labels), "names": names}
LENGTH, SIZE, SLEEP = 64, 16, 0.0
loader = LOADER
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    for batch in loader:
        images, labels = (batch["images"], batch["labels"]) if isinstance(batch, dict) else batch
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loads", Images.loads)
"""


def shapes(ops: dict[str, Any]) -> set[tuple[int, ...]]:
    return {
        tuple(tensor["s"])
        for signature in ops["signatures"]
        for tensor in signature["in"]
        if isinstance(tensor, dict)
    }


def test_loads_one_sample_and_starts_no_workers(agent: Agent, tmp_path: Path) -> None:
    loader = "DataLoader(Images(), 32, shuffle=True, num_workers=2, persistent_workers=True)"
    ops = complete_estimate(agent, tmp_path, TRAINING.replace("LOADER", loader, 1))
    assert (32, 768) in shapes(ops)
    assert ops["batch"]["size"] == 32 and ops["batch"]["from"] == "loader"
    assert log(tmp_path).splitlines()[-1] == b"loads 1"


def test_very_long_dataset(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("LENGTH, SIZE, SLEEP = 64", "LENGTH, SIZE, SLEEP = 1 << 40")
    ops = complete_estimate(
        agent, tmp_path, text.replace("LOADER", "DataLoader(Images(), 8, shuffle=True)")
    )
    assert (8, 768) in shapes(ops)


def test_loader_with_a_single_batch(agent: Agent, tmp_path: Path) -> None:
    text = TRAINING.replace("LENGTH, SIZE, SLEEP = 64", "LENGTH, SIZE, SLEEP = 8")
    assert (8, 768) in shapes(
        complete_estimate(agent, tmp_path, text.replace("LOADER", "DataLoader(Images(), 8)"))
    )


def test_custom_collate_fn(agent: Agent, tmp_path: Path) -> None:
    loader = "DataLoader(Images(), 8, collate_fn=collate)"
    assert (8, 768) in shapes(
        complete_estimate(agent, tmp_path, TRAINING.replace("LOADER", loader))
    )


STREAM = TRAINING.replace("LOADER", "DataLoader(Stream(), batch_size=8)")


def record_batches(agent: Agent, folder: Path, text: str) -> str:
    finished = agent.run(folder, text, iterations={"warmup": 0, "timed": 1, "profiled": 1})
    assert finished["outcome"] == "complete", log(folder)
    path = folder / "recorded.json"
    (folder / "out" / "batch.json").rename(path)
    return str(path)


def test_recorded_batches_replace_slow_stream(agent: Agent, tmp_path: Path) -> None:
    path = record_batches(agent, tmp_path, STREAM)
    assert json.loads(Path(path).read_text()) == {
        "version": 1,
        "loaders": [
            {
                "dataset": "Stream",
                "batch_size": 8,
                "batch": {
                    "list": [
                        [1, {"tensor": "float32", "shape": [8, 3, 16, 16]}],
                        [1, {"tensor": "int64", "shape": [8]}],
                    ]
                },
            }
        ],
    }
    endless = STREAM.replace("16, 0.0", "16, 1e6").replace("batch_size=8", "batch_size=32")
    ops = complete_estimate(agent, tmp_path, endless, batches=path)
    assert (32, 768) in shapes(ops)
    assert ops["batch"]["size"] == 32


def test_stream_is_read_without_recorded_batches(agent: Agent, tmp_path: Path) -> None:
    assert (8, 768) in shapes(complete_estimate(agent, tmp_path, STREAM))


def test_invalid_recorded_batches_add_note(agent: Agent, tmp_path: Path) -> None:
    for content in ("[]", "{", '{"version": 2}', '{"version": 1, "loaders": [1]}'):
        (tmp_path / "batch.json").write_text(content)
        finished = estimate(agent, tmp_path, STREAM, batches=str(tmp_path / "batch.json"))
        assert finished["outcome"] == "complete"
        assert "the recorded batches cannot be read" in finished["ops"]["notes"][0]


def test_structure_is_created_with_another_batch_size() -> None:
    batch = {
        "first": torch.zeros(4, 5),
        "time first": [torch.zeros(7, 4, dtype=torch.int64)],
        "names": ["a", "b", "c", "d"],
        "size": (4, True, None),
    }
    structure = json.loads(json.dumps(describe(batch)))
    created = make(structure, lambda shape, dtype: torch.zeros(shape, dtype=dtype), 4, 6)
    assert created["first"].shape == (6, 5)
    assert (
        created["time first"][0].shape == (7, 6) and created["time first"][0].dtype is torch.int64
    )
    assert created["names"] == [""] * 6 and len(created["size"]) == 3


def test_unsupported_structures_are_not_describable() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for batch in (object(), {object(): 1}, nested, [torch.zeros(1).to_sparse()], range(3)):
        with pytest.raises(NotDescribable):
            describe(batch)
