"""A GAN: two models, two optimizers, three backward passes an iteration."""

import torch
from networks import Discriminator, Generator
from torch import nn

BATCH = 16
LATENT = 8


def discriminator_loss(discriminator, criterion, real, fake):
    on_real = criterion(discriminator(real), torch.ones(BATCH, 1))
    on_real.backward()
    on_fake = criterion(discriminator(fake.detach()), torch.zeros(BATCH, 1))
    on_fake.backward()
    return (on_real + on_fake).item()


def main():
    generator = Generator(LATENT)
    discriminator = Discriminator()
    criterion = nn.BCEWithLogitsLoss()
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images = torch.rand(256, 1, 16, 16)
    loader = torch.utils.data.DataLoader(images, batch_size=BATCH, shuffle=True)
    while True:
        for real in loader:
            noise = torch.randn(BATCH, LATENT, 1, 1)
            fake = generator(noise)

            optimizer_d.zero_grad()
            discriminator_loss(discriminator, criterion, real, fake)
            optimizer_d.step()

            optimizer_g.zero_grad()
            loss_g = criterion(discriminator(fake), torch.ones(BATCH, 1))
            loss_g.backward()
            optimizer_g.step()


if __name__ == "__main__":
    main()
