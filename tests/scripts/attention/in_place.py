"""Attention with a mask filled in place, over three dimensions, in the manner of a textbook."""

import torch


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden: torch.Tensor):
    scores = torch.bmm(queries, keys.transpose(1, 2))
    scores /= 3
    scores.masked_fill_(hidden, -torch.inf)
    weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=2)
    weights = torch.nn.functional.dropout(weights, p=0.0)
    return torch.bmm(weights, values).tanh()


torch.manual_seed(0)
layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.5)
x, target = torch.randn(8, 12, 16), torch.randn(8, 12, 16)
hidden = torch.triu(torch.ones(12, 12), diagonal=1).bool()
for _ in range(20):
    optimizer.zero_grad()
    output = attend(layers[0](x), layers[1](x), layers[2](x), hidden)
    loss = torch.nn.functional.mse_loss(output, target)
    loss.backward()
    optimizer.step()
    print(loss.item())
