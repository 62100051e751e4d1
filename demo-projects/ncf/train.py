"""Train neural collaborative filtering on synthetic clicks."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from model import NeuMF
from ratings import Clicks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--big", action="store_true", help="sizes that keep a GPU busy")
    args = parser.parse_args()

    users, items, clicks = 6_000, 3_700, 20_000
    if args.big:
        users, items, clicks, args.batch_size = 138_000, 27_000, 4_000_000, 65_536

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Clicks(clicks, users, items), batch_size=args.batch_size, shuffle=True)
    model = NeuMF(users, items).to(device)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        for user, item, label in loader:
            user, item, label = user.to(device), item.to(device), label.to(device)
            loss = criterion(model(user, item), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
