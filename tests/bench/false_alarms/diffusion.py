"""Train a U-Net to remove noise (Ho et al., "Denoising Diffusion Probabilistic Models", 2020)."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

STEPS = 1000


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        hidden = self.conv2(F.silu(self.norm2(hidden)))
        return hidden + self.skip(x)


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, 3, 4, channels // 4, height * width)
        q, k, v = qkv.transpose(-2, -1).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-2, -1).reshape(batch, channels, height, width))


class UNet(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.begin = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = Block(width, width, time)
        self.shrink = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.down2 = Block(2 * width, 2 * width, time)
        self.attention = Attention(2 * width)
        self.middle = Block(2 * width, 2 * width, time)
        self.grow = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up1 = Block(2 * width, width, time)
        self.end = nn.Conv2d(width, 3, 3, padding=1)

    def embed(self, steps: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, device=steps.device) / half)
        angles = steps[:, None] * rates
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        time = self.embed(steps)
        x = kept = self.down1(self.begin(x), time)
        x = self.attention(self.down2(self.shrink(x), time))
        x = self.middle(x, time)
        x = self.grow(F.interpolate(x, scale_factor=2.0))
        return self.end(self.up1(torch.cat([x, kept], dim=1), time))


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    betas = torch.linspace(1e-4, 0.02, STEPS, device=device)
    left = (1 - betas).cumprod(0)
    model = UNet().to(device)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    loader = DataLoader(TensorDataset(torch.randn(192, 3, 32, 32)), batch_size=8, shuffle=True)
    for epoch in range(2):
        for (pictures,) in loader:
            pictures = pictures.to(device)
            steps = torch.randint(STEPS, (len(pictures),), device=device)
            noise = torch.randn_like(pictures)
            share = left[steps][:, None, None, None]
            noisy = share.sqrt() * pictures + (1 - share).sqrt() * noise
            loss = F.mse_loss(model(noisy, steps), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
