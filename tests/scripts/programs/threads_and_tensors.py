"""A prefetching thread with a queue, autocast as a decorator, and shared (tied) weights."""

import queue
import threading

import torch
from torch import nn


class TiedLanguageModel(nn.Module):
    def __init__(self, vocab=256, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden)  # forward


def prefetch(out):
    while True:
        out.put(torch.randint(0, 256, (16, 33)))


batches = queue.Queue(maxsize=2)
threading.Thread(target=prefetch, args=(batches,), daemon=True).start()
model = TiedLanguageModel()
optimizer = torch.optim.NAdam(model.parameters())
for _ in range(200):  # loop
    tokens = batches.get()
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
    loss.backward()  # backward
    optimizer.step()  # step
    optimizer.zero_grad()
