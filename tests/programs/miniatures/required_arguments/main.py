import argparse

import torch


class Discriminator(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Conv2d(3, 128, 3)
        self.head = torch.nn.Linear(128, 1)

    def forward(self, images):
        x = torch.relu(self.wide(images))  # top
        return self.head(x.mean(dim=(2, 3)))


parser = argparse.ArgumentParser()
parser.add_argument("--dataset", required=True, help="cifar10 | folder | fake")
parser.add_argument("--batchSize", type=int, default=64, help="input batch size")
parser.add_argument("--niter", type=int, default=25, help="number of epochs to train for")
opt = parser.parse_args()

if opt.dataset != "fake":
    parser.error(f"`dataroot` parameter is required for dataset {opt.dataset!r}")

images = torch.rand(512, 3, 16, 16)
dataloader = torch.utils.data.DataLoader(images, batch_size=opt.batchSize, shuffle=True)
netG = torch.nn.Sequential(
    torch.nn.Linear(32, 3 * 16 * 16), torch.nn.Tanh(), torch.nn.Unflatten(1, (3, 16, 16))
)
netD = Discriminator()
criterion = torch.nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4)

for _ in range(opt.niter):
    for data in dataloader:
        netD.zero_grad()
        label = torch.ones(data.size(0), 1)
        errD_real = criterion(netD(data), label)
        errD_real.backward()
        fake = netG(torch.randn(data.size(0), 32))
        errD_fake = criterion(netD(fake.detach()), torch.zeros_like(label))
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
