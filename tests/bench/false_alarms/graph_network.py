"""Train a graph network to classify papers by topic (Kipf and Welling, 2017)."""

import torch
from torch import nn
from torch.nn import functional as F

PAPERS, CITATIONS, FEATURES, CLASSES = 2700, 10_000, 500, 7


class GraphConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        sources, targets = edges
        messages = x[sources] * weights[:, None]
        return torch.zeros_like(x).index_add_(0, targets, messages)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GraphConvolution(FEATURES, 64)
        self.second = GraphConvolution(64, CLASSES)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        x = F.dropout(F.relu(self.first(x, edges, weights)), 0.5, self.training)
        return self.second(x, edges, weights)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.rand(PAPERS, FEATURES, device=device)
    classes = torch.randint(CLASSES, (PAPERS,), device=device)
    loops = torch.arange(PAPERS, device=device)
    cited = torch.randint(PAPERS, (2, CITATIONS), device=device)
    edges = torch.cat([cited, torch.stack([loops, loops])], dim=1)
    degree = torch.bincount(edges[1], minlength=PAPERS).float()
    weights = (degree[edges[0]] * degree[edges[1]]).rsqrt()
    known = torch.rand(PAPERS, device=device) < 0.5
    model = Network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(40):
        model.train()
        optimizer.zero_grad()
        scores = model(x, edges, weights)
        loss = F.cross_entropy(scores[known], classes[known])
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            model.eval()
            with torch.no_grad():
                right = model(x, edges, weights).argmax(dim=1) == classes
            print(f"epoch {epoch}: accuracy {right[~known].float().mean().item():.1%}")


if __name__ == "__main__":
    main()
