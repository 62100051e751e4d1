"""A Wasserstein GAN with gradient penalty: five critic steps for one of the generator."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
critic = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4)
optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-4)


def penalty(real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    return (gradient.norm(2, dim=1) - 1).square().mean()


for _ in range(60):  # loop
    for _ in range(5):
        real = torch.randn(64, 32)
        fake = generator(torch.randn(64, 16)).detach()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)  # forward
        optimizer_c.zero_grad()
        loss.backward()  # backward
        optimizer_c.step()
    loss_g = -critic(generator(torch.randn(64, 16))).mean()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()  # step
