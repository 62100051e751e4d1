"""Classify sentences of very different lengths."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

PAD = 0


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128, padding_idx=PAD)
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
        self.classify = nn.Linear(128, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.mlp(x)
        kept = (tokens != PAD).unsqueeze(-1)
        return self.classify((x * kept).sum(dim=1) / kept.sum(dim=1))


def collate(sentences: list[Tensor]) -> Tensor:
    return pad_sequence(sentences, batch_first=True, padding_value=PAD)


def main() -> None:
    torch.manual_seed(0)
    lengths = torch.randint(8, 160, (960,)).tolist()
    sentences = [torch.randint(1, 1000, (length,)) for length in lengths]
    # Batches contain sentences of similar length, and come in random order.
    sentences.sort(key=len)
    batches = [range(32 * (batch * 11 % 30), 32 * (batch * 11 % 30 + 1)) for batch in range(30)]
    loader = DataLoader(sentences, batch_sampler=batches, collate_fn=collate)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for epoch in range(4):
        for tokens in loader:
            labels = tokens[:, 0] % 4
            loss = nn.functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
