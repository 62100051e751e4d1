"""Samples text from a language model, one token after the other."""

import torch


class GRULM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(256, 1024)
        self.cell = torch.nn.GRU(1024, 1024)
        self.head = torch.nn.Linear(1024, 256)

    def forward(self, token, hidden=None):
        out, hidden = self.cell(self.embed(token), hidden)  # top
        return self.head(out), hidden


torch.manual_seed(0)
model = GRULM()
model.eval()
token = torch.randint(256, (1, 1))
hidden = None
words = []
with torch.no_grad():
    for _ in range(1000):
        logits, hidden = model(token, hidden)
        weights = logits.squeeze().div(1.0).softmax(dim=-1)
        token = torch.multinomial(weights, 1).view(1, 1)
        words.append(token.item())
print(bytes(words))
