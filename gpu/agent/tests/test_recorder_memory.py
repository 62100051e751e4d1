"""Memory: the baseline and the profiler's events together give what is counted by hand."""

from __future__ import annotations

from collections import Counter

from recording import Recording, record


def replay(recording: Recording) -> tuple[int, dict[int, int]]:
    """The peak of the measured iteration in bytes, and what was alive at its end."""
    trace = recording.trace()
    base = int(trace.get("baseTimeNanoseconds", 0))
    manifest = recording.manifest
    begin, end = manifest["iterations"]["profiled"][manifest["iterations"]["measured"]]
    alive = {entry["ptr"]: entry["bytes"] for entry in manifest["memory"]["baseline"]}
    peak = sum(alive.values())
    changes = [event for event in trace["traceEvents"] if event.get("name") == "[memory]"]
    for event in sorted(changes, key=lambda change: change["args"]["Ev Idx"]):
        if begin <= base + event["ts"] * 1000 <= end:
            if event["args"]["Bytes"] > 0:
                alive[event["args"]["Addr"]] = event["args"]["Bytes"]
            else:
                alive.pop(event["args"]["Addr"], None)
            peak = max(peak, sum(alive.values()))
    return peak, alive


def by_kind(recording: Recording) -> Counter[str]:
    """Bytes of the baseline."""
    kinds: Counter[str] = Counter()
    for entry in recording.manifest["memory"]["baseline"]:
        kinds[entry["kind"]] += entry["bytes"]
    return kinds


def test_peak_counted_by_hand() -> None:
    recording = record("""
        import torch
        weight = torch.nn.Parameter(torch.ones(1000))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        def iteration():
            optimizer.zero_grad()
            a = torch.ones(100_000)     # 400 kB
            b = a * 2                   # 400 kB
            del a
            c = b * weight.sum()        # 400 kB, and b is kept for backward
            c.sum().backward()          # 400 kB of b times the gradient, beside b and c
            optimizer.step()
        while True:
            iteration()
    """)
    assert recording.outcome == "complete", recording.printed
    peak, alive = replay(recording)
    # At the peak: b, c, the product, the weight and its momentum. Scalars take less than 100 bytes.
    assert 0 <= peak - (3 * 400_000 + 2 * 4_000) < 100
    assert by_kind(recording) == {
        "weight": 4_000,
        "gradient": 4_000,
        "optimizer_state": 4_000,
        "other": 2 * 400_000,
    }
    # When the step ends: the weight, its gradient and its momentum, and still b and c.
    assert 0 <= sum(alive.values()) - (2 * 400_000 + 3 * 4_000) < 100


def test_peak_of_a_model_counted_by_hand() -> None:
    recording = record("""
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(100, 1000), nn.Sigmoid(), nn.Linear(1000, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(500, 100)
        def iteration():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        while True:
            iteration()
    """)
    peak, _ = replay(recording)
    weights = 4 * (100 * 1000 + 1000 + 1000 + 1)
    # The peak is where sigmoid's backward runs: its output, the gradient of its output and the one
    # that it makes, each 500 x 1000, with the second layer's gradients already there.
    wanted = weights + 4 * 500 * 100 + 3 * 4 * 500 * 1000 + 4 * 1001
    assert 0 <= peak - wanted < 4 * 500 * 2, peak - wanted


def test_kinds() -> None:
    recording = record("""
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(10, 20)
                self.norm = nn.BatchNorm1d(20)
            def forward(self, x):
                return self.norm(self.linear(x))
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        table = torch.ones(1000)
        while True:
            for batch in DataLoader([torch.ones(10) for _ in range(6)], batch_size=3):
                model(batch).sum().backward()
                optimizer.step()
    """)
    kinds = by_kind(recording)
    weights = 4 * (10 * 20 + 20 + 20 + 20)
    assert kinds["weight"] == weights
    assert kinds["gradient"] == weights
    # Two moments, and a step count of four bytes for each of the four parameters.
    assert kinds["optimizer_state"] == 2 * weights + 4 * 4
    assert kinds["buffer"] == 4 * 20 * 2 + 8
    # The table, six samples and the last batch; nothing of the iteration before.
    assert 4 * 1000 + 6 * 40 <= kinds["other"] <= 4 * 1000 + 6 * 40 + 1000
    memory = recording.manifest["memory"]
    assert memory["device"] == "cpu"
    assert [entry["bytes"] for entry in memory["batch"]] == [3 * 10 * 4]
    assert sum(entry["bytes"] for entry in memory["gradients"]) == weights
    norm = recording.manifest["modules"].index(recording.module("norm"))
    owners = [e for e in memory["baseline"] if e["kind"] == "weight" and e["module"] == norm]
    assert sorted(entry["name"] for entry in owners) == ["bias", "weight"]
    state = [e for e in memory["baseline"] if e["kind"] == "optimizer_state"]
    assert all(entry["module"] is not None for entry in state)
    assert recording.manifest["notes"] == []


def test_gradients_that_were_freed_before_the_step_are_known() -> None:
    recording = record("""
        import torch
        weight = torch.nn.Parameter(torch.ones(1000))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        model = torch.nn.Linear(10, 10)
        while True:
            model(torch.ones(10)).sum().backward()
            model.zero_grad()
            weight.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """)
    sizes = {entry["bytes"] for entry in recording.manifest["memory"]["gradients"]}
    assert sizes >= {400, 40}


def test_batches_of_many_shapes() -> None:
    recording = record("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Texts(Dataset):
            def __len__(self):
                return 1000
            def __getitem__(self, index):
                return {"tokens": torch.ones(7), "meta": [torch.ones(2), "text"], "id": index}
        def time_first(samples):
            batch = torch.utils.data.default_collate(samples)
            return {"tokens": batch["tokens"].t(), "meta": (batch["meta"], batch["id"])}
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Texts(), batch_size=4, collate_fn=time_first):
            model(batch["tokens"]).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["batch"] == {"size": 4, "from": "loader"}
    sizes = sorted(entry["bytes"] for entry in recording.manifest["memory"]["batch"])
    assert sizes == [4 * 2 * 4, 4 * 8, 4 * 7 * 4]


def test_workers_and_iterable_datasets() -> None:
    recording = record("""
        import torch
        from torch.utils.data import DataLoader, IterableDataset
        class Endless(IterableDataset):
            def __iter__(self):
                while True:
                    yield torch.ones(4)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Endless(), batch_size=6, num_workers=2):
            model(batch).sum().backward()
            optimizer.step()
    """)
    assert recording.outcome == "complete", recording.printed
    assert recording.manifest["batch"] == {"size": 6, "from": "loader"}
    assert recording.manifest["notes"] == []
    assert [entry["bytes"] for entry in recording.manifest["memory"]["batch"]] == [6 * 4 * 4]
