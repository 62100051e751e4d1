"""Two branches of a model on two streams, and a prefetcher that copies on a third."""

import os

import torch
from torch import nn

STEPS = int(os.environ.get("STEPS", "60"))


class Prefetcher:
    """Copies the next batch to the GPU during the computation on the current one."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.stream = torch.cuda.Stream()
        self.next = None
        self.preload()

    def preload(self):
        batch = next(self.batches, None)
        if batch is None:
            self.next = None
            return
        with torch.cuda.stream(self.stream):
            self.next = batch.cuda(non_blocking=True)

    def __iter__(self):
        while self.next is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            batch.record_stream(torch.cuda.current_stream())
            self.preload()
            yield batch


def main():
    left = nn.Linear(512, 512).cuda()
    right = nn.Linear(512, 512).cuda()
    parameters = [*left.parameters(), *right.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    side = torch.cuda.Stream()
    batches = (torch.randn(256, 512).pin_memory() for _ in range(STEPS))
    for batch in Prefetcher(batches):  # the training loop
        optimizer.zero_grad(set_to_none=True)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = torch.relu(left(batch))
        b = torch.relu(right(batch))
        torch.cuda.current_stream().wait_stream(side)
        a.record_stream(torch.cuda.current_stream())
        loss = (a * b).sum()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
