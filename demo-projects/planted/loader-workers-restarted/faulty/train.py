"""Train for many epochs on a small dataset."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 64), torch.randint(10, (128,)))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)  # fault
    model = nn.Sequential(
        nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for epoch in range(24):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
