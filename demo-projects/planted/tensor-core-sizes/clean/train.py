"""Train a small language model in 16-bit precision."""

import torch
from torch import Tensor, nn


class LanguageModel(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 768)
        self.body = nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))
        self.head = nn.Linear(768, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.body(x)
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokens, words = (4096, 50_304) if device == "cuda" else (64, 320)
    model = LanguageModel(words).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(200):
        text = torch.randint(words, (tokens + 1,), device=device)
        loss = nn.functional.cross_entropy(model(text[:-1]), text[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
