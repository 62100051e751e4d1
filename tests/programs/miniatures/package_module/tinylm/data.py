import torch


def batches(count, batch_size, length):
    for _ in range(count):
        tokens = torch.randint(0, 96, (batch_size, length + 1))
        yield tokens[:, :-1], tokens[:, 1:]
