import torch


class GPT(torch.nn.Module):
    def __init__(self, vocab_size, block_size, width=96):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocab_size, width)
        self.places = torch.nn.Parameter(torch.zeros(1, block_size, width))
        self.block = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.head = torch.nn.Linear(width, vocab_size)

    def forward(self, idx, targets):
        x = self.tokens(idx) + self.places[:, : idx.shape[1]]
        x = self.block(x)  # top
        logits = self.head(x)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
