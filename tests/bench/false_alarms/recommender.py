"""Train a recommender on clicks (Naumov et al., "Deep Learning Recommendation Model", 2019)."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZES = [5000, 20_000, 300, 50]


def layers(*widths: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts)


class Recommender(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, width, sparse=True) for size in SIZES)
        self.bottom = layers(13, 128, 64, width)
        count = len(SIZES) + 1
        self.register_buffer("pairs", torch.tril_indices(count, count, -1), persistent=False)
        self.top = layers(width + count * (count - 1) // 2, 128, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(numbers)
        looked_up = [table(kinds[:, at]) for at, table in enumerate(self.tables)]
        stacked = torch.stack([dense, *looked_up], dim=1)
        products = stacked @ stacked.transpose(1, 2)
        crossed = products[:, self.pairs[0], self.pairs[1]]
        return self.head(self.top(torch.cat([dense, crossed], dim=1))).squeeze(1)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    count = 256 * 60
    kinds = torch.stack([torch.randint(size, (count,)) for size in SIZES], dim=1)
    clicks = torch.randint(2, (count,)).float()
    data = TensorDataset(torch.rand(count, 13), kinds, clicks)
    loader = DataLoader(data, batch_size=256, shuffle=True, drop_last=True)
    model = Recommender().to(device)
    sparse = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
    others = [one for name, one in model.named_parameters() if not name.startswith("tables")]
    dense = torch.optim.Adam(others, lr=1e-3)
    for epoch in range(2):
        for numbers, kinds, clicked in loader:
            scores = model(numbers.to(device), kinds.to(device))
            loss = F.binary_cross_entropy_with_logits(scores, clicked.to(device))
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
