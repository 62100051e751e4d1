"""Train a residual network, and track the largest activation after each layer."""

import torch
from torch import Tensor, nn

torch.set_float32_matmul_precision("high")


class Residual(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers = (nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        self.largest = []
        for layer in self.layers:
            x = x + layer(x)
            self.largest.append(x.detach().abs().amax())
        return x


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, width, depth = (8192, 1024, 48) if device == "cuda" else (256, 64, 4)
    model = Residual(width, depth).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for _ in range(200):
        x = torch.randn(rows, width, device=device)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    largest = max(float(one) for one in model.largest)
    print(f"loss {loss.item():.3f}, largest activation {largest:.2f}")


if __name__ == "__main__":
    main()
