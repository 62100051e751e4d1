import torch


def train_one_epoch(model, criterion, data_loader, optimizer, max_norm):
    model.train()
    for images, targets in data_loader:
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()


@torch.no_grad()
def evaluate(model, criterion, data_loader):
    model.eval()
    return sum(criterion(model(images), targets).item() for images, targets in data_loader)
