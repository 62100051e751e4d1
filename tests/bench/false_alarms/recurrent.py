"""Train an LSTM language model with truncated backpropagation through time."""

import math

import torch
from torch import nn

WORDS, LENGTH, BATCH = 2000, 35, 16


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 128)
        self.lstm = nn.LSTM(128, 128, num_layers=2, dropout=0.2, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(128, WORDS)

    def forward(
        self, words: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        hidden, state = self.lstm(self.dropout(self.embedding(words)), state)
        return self.head(self.dropout(hidden)), state


def evaluate(model: Writer, text: torch.Tensor) -> float:
    model.eval()
    total, state = 0.0, None
    with torch.inference_mode():
        for start in range(0, 4 * LENGTH, LENGTH):
            part = text[:, start : start + LENGTH + 1]
            scores, state = model(part[:, :-1], state)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), part[:, 1:].flatten())
            total += loss.item()
    return math.exp(total / 4)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    text = torch.randint(WORDS, (BATCH, 30 * LENGTH + 1), device=device)
    model = Writer().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for epoch in range(2):
        model.train()
        state = None
        for start in range(0, 30 * LENGTH, LENGTH):
            part = text[:, start : start + LENGTH + 1]
            if state is not None:
                state = tuple(one.detach() for one in state)
            scores, state = model(part[:, :-1], state)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), part[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        print(f"epoch {epoch}: perplexity {evaluate(model, text):.1f}")


if __name__ == "__main__":
    main()
