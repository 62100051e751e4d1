"""Train a DCGAN on synthetic images: two networks, two optimizers, two steps per iteration."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from model import Discriminator, Generator, weights_init


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--big", action="store_true", help="sizes that keep a GPU busy")
    args = parser.parse_args()
    if args.big:
        args.batch_size, args.latent, args.features = 512, 128, 128

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pictures = torch.rand(32 * args.batch_size, 3, 32, 32) * 2 - 1
    loader = DataLoader(TensorDataset(pictures), batch_size=args.batch_size, shuffle=True)

    generator = Generator(args.latent, args.features).to(device)
    discriminator = Discriminator(args.features).to(device)
    generator.apply(weights_init)
    discriminator.apply(weights_init)

    criterion = nn.BCEWithLogitsLoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))

    for epoch in range(args.epochs):
        for (real,) in loader:
            real = real.to(device)
            noise = torch.randn(len(real), args.latent, 1, 1, device=device)
            fake = generator(noise)

            # The discriminator learns to tell real images from fake ones.
            optimizer_d.zero_grad()
            verdict_real = discriminator(real)
            loss_real = criterion(verdict_real, torch.ones_like(verdict_real))
            verdict_fake = discriminator(fake.detach())
            loss_fake = criterion(verdict_fake, torch.zeros_like(verdict_fake))
            loss_d = loss_real + loss_fake
            loss_d.backward()
            optimizer_d.step()

            # The generator learns to fool the discriminator.
            optimizer_g.zero_grad()
            verdict = discriminator(fake)
            loss_g = criterion(verdict, torch.ones_like(verdict))
            loss_g.backward()
            optimizer_g.step()
        print(f"epoch {epoch}: D {loss_d.item():.3f} G {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
