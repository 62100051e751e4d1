"""An LSTM language model over synthetic text, with truncated backpropagation through time."""

import torch
from torch import nn

VOCABULARY, BATCH, LENGTH = 200, 8, 24


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 48)
        self.lstm = nn.LSTM(48, 64, num_layers=2, dropout=0.1, batch_first=True)
        self.decode = nn.Linear(64, VOCABULARY)

    def forward(self, tokens, state):
        hidden, state = self.lstm(self.embed(tokens), state)
        return self.decode(hidden), state


def batches(text):
    rows = text[: len(text) // BATCH * BATCH].view(BATCH, -1)
    for start in range(0, rows.size(1) - LENGTH - 1, LENGTH):
        yield rows[:, start : start + LENGTH], rows[:, start + 1 : start + LENGTH + 1]


def main():
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(0, VOCABULARY, (40_000,))
    state = None
    for tokens, targets in batches(text):
        if state is not None:
            state = tuple(part.detach() for part in state)
        logits, state = model(tokens, state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
