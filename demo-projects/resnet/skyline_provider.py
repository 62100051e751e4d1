"""The same model as a Skyline provider: three functions instead of a script."""

import torch
from torch import nn

from model import resnet50

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def skyline_model_provider():
    return resnet50().to(DEVICE).train()


def skyline_input_provider(batch_size=8):
    images = torch.randn(batch_size, 3, 64, 64, device=DEVICE)
    labels = torch.randint(0, 1000, (batch_size,), device=DEVICE)
    return images, labels


def skyline_iteration_provider(model):
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def iteration(images, labels):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()

    return iteration
