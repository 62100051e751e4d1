import torch


class TinyLM(torch.nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = torch.nn.Embedding(96, width)
        self.rnn = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, 96)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))  # top
        return self.head(hidden)
