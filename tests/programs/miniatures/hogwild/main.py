import argparse

import torch
import torch.multiprocessing as mp
from train import train


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 5)
        self.conv2 = torch.nn.Conv2d(8, 64, 5)
        self.fc = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))  # top
        return torch.log_softmax(self.fc(x.mean(dim=(2, 3))), dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Hogwild")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--num-processes", type=int, default=2)
    args = parser.parse_args()
    mp.set_start_method("spawn", force=True)
    torch.set_num_threads(1)
    model = Net()
    model.share_memory()
    processes = []
    for rank in range(args.num_processes):
        process = mp.Process(target=train, args=(rank, args, model))
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
