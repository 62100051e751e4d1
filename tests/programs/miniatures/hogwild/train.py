import torch
import torch.nn.functional as F


def train(rank, args, model):
    torch.manual_seed(args.seed + rank)
    data = torch.utils.data.TensorDataset(torch.rand(4096, 1, 28, 28), torch.randint(10, (4096,)))
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for epoch in range(args.epochs):
        train_epoch(epoch, args, model, loader, optimizer)


def train_epoch(epoch, args, model, loader, optimizer):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"{epoch} {batch_idx} {loss.item():.4f}")
