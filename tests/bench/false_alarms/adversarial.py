"""Train an image generator against a discriminator (Radford et al., "DCGAN", 2016)."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = 64


def grow(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def shrink(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, inplace=True)]


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = nn.Sequential(
        nn.ConvTranspose2d(NOISE, 128, 4, 1, 0, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(inplace=True),
        *grow(128, 64),
        *grow(64, 32),
        nn.ConvTranspose2d(32, 3, 4, 2, 1),
        nn.Tanh(),
    ).to(device)
    critic = nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        *shrink(32, 64),
        *shrink(64, 128),
        nn.Conv2d(128, 1, 4, 1, 0),
        nn.Flatten(0),
    ).to(device)
    criterion = nn.BCEWithLogitsLoss()
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loader = DataLoader(TensorDataset(torch.rand(640, 3, 32, 32)), batch_size=32, shuffle=True)
    losses = []
    for epoch in range(2):
        for (real,) in loader:
            real = real.to(device)
            true = torch.ones(len(real), device=device)
            fake = generator(torch.randn(len(real), NOISE, 1, 1, device=device))
            of_critic.zero_grad()
            judged = criterion(critic(real), true) + criterion(critic(fake.detach()), 1 - true)
            judged.backward()
            of_critic.step()
            of_generator.zero_grad()
            made = criterion(critic(fake), true)
            made.backward()
            of_generator.step()
            losses.append((judged.item(), made.item()))
        print(f"epoch {epoch}: critic {losses[-1][0]:.3f}, generator {losses[-1][1]:.3f}")


if __name__ == "__main__":
    main()
