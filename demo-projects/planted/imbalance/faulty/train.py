"""Predict the next byte on two ranks: torchrun --standalone --nproc-per-node 2 train.py"""

import torch
import torch.distributed as dist
from sentences import batches, sentences
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(2)]
    layers = [nn.Embedding(256, 512), *hidden, nn.Linear(512, 256)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    texts = sentences()
    for tokens in batches(texts, dist.get_rank(), dist.get_world_size()):  # fault
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
