"""Score sequences step by step."""

import torch
from torch import Tensor, nn


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.score = nn.Linear(32, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        scores = []
        for step in range(sequences.shape[1]):  # fault
            hidden = torch.tanh(self.embed(sequences[:, step]))
            scores.append(self.score(hidden))
        return torch.stack(scores, dim=1)


def main() -> None:
    torch.manual_seed(0)
    model = Scorer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(40):
        sequences = torch.randn(32, 100, 16)
        loss = (model(sequences) - sequences.sum(dim=-1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
