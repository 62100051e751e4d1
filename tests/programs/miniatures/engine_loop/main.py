import argparse

import torch
from engine import evaluate, train_one_epoch
from net import Net


def get_args_parser():
    parser = argparse.ArgumentParser("Set detector", add_help=False)
    parser.add_argument("--batch_size", default=4, type=int)
    parser.add_argument("--epochs", default=10, type=int)
    parser.add_argument("--clip_max_norm", default=0.1, type=float)
    return parser


def main(args):
    model = Net()
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.utils.data.TensorDataset(torch.rand(128, 3, 32, 32), torch.randint(10, (128,)))
    loader = torch.utils.data.DataLoader(data, args.batch_size, shuffle=True)
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, loader, optimizer, args.clip_max_norm)
        print(epoch, evaluate(model, criterion, loader))


if __name__ == "__main__":
    parser = argparse.ArgumentParser("Training and evaluation script", parents=[get_args_parser()])
    main(parser.parse_args())
