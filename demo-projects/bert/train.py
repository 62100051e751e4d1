"""Pre-train BERT on synthetic sentences, accumulating gradients over two batches."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import IGNORED, MaskedSentences
from model import Bert, BertConfig


class Trainer:
    def __init__(self, model: Bert, device: torch.device, accumulate: int) -> None:
        self.model = model.to(device)
        self.device = device
        self.accumulate = accumulate
        self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=100)

    def loss(self, batch: dict) -> torch.Tensor:
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        logits = self.model(batch["tokens"], batch["segments"])
        return self.criterion(logits.flatten(0, 1), batch["labels"].flatten())

    def fit(self, loader: DataLoader, epochs: int) -> None:
        self.model.train()
        for epoch in range(epochs):
            for number, batch in enumerate(loader, start=1):
                loss = self.loss(batch) / self.accumulate
                loss.backward()
                if number % self.accumulate == 0:
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
            print(f"epoch {epoch}: loss {loss.item() * self.accumulate:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--sentences", type=int, default=800)
    parser.add_argument("--big", action="store_true", help="BERT-base, for a GPU")
    args = parser.parse_args()

    config = BertConfig()
    if args.big:
        args.batch_size = 64
        config = BertConfig(30_528, 768, 12, 12, 3072, max_length=512)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(
        MaskedSentences(args.sentences, config), batch_size=args.batch_size, drop_last=True
    )
    Trainer(Bert(config), device, accumulate=2).fit(loader, args.epochs)


if __name__ == "__main__":
    main()
