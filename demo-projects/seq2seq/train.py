"""Train an LSTM encoder-decoder with attention to reverse sentences."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import PAD, ReversedSentences, collate
from model import Seq2Seq


def train_epoch(model, loader, criterion, optimizer, device) -> float:
    model.train()
    total = 0.0
    for source, target in loader:
        source, target = source.to(device), target.to(device)

        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()

        total += loss.item()
    return total / len(loader)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--big", action="store_true", help="sizes that keep a GPU busy")
    args = parser.parse_args()

    vocab_size, width, longest, sentences = 1000, 128, 24, 1600
    if args.big:
        args.batch_size = 128
        vocab_size, width, longest, sentences = 32_000, 1024, 64, 12_800

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        ReversedSentences(sentences, vocab_size, longest),
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        drop_last=True,
    )
    model = Seq2Seq(vocab_size, width).to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, criterion, optimizer, device)
        print(f"epoch {epoch}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
