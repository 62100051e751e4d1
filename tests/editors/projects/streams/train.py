"""Two branches on two streams, and batches that are copied on a third one during computation."""

import torch
from torch import nn


class TwoBranches(nn.Module):
    """Convolutions on one stream in parallel with a wide layer on another."""

    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
        self.local = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv2d(64, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.wide = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 4096))
        self.head = nn.Linear(16 * 256 + 4096, 100)

    def forward(self, images):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            wide = self.wide(images)
        local = self.local(images)
        torch.cuda.current_stream().wait_stream(self.side)
        return self.head(torch.cat([local, wide], dim=1))


def batches(count):
    """Batches on the GPU. The next batch is copied while the current one is used."""
    copies = torch.cuda.Stream()
    images = torch.randn(512, 3, 64, 64).pin_memory()
    labels = torch.randint(100, (512,)).pin_memory()
    ready = None
    for _ in range(count):
        with torch.cuda.stream(copies):
            coming = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(copies)
        ready = coming


model = TwoBranches().cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for images, labels in batches(200):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
