"""Train a small GPT on synthetic text."""

import argparse
import math

import torch

from corpus import batches
from model import GPT, Config


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then cosine decay to a tenth of the peak."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def train(config: Config, steps: int, batch_size: int, device: torch.device) -> None:
    model = GPT(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))

    model.train()
    for step, (tokens, targets) in enumerate(batches(config, batch_size, steps)):
        tokens, targets = tokens.to(device), targets.to(device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak=3e-4)

        _, loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--big", action="store_true", help="sizes that keep a GPU busy")
    args = parser.parse_args()

    config = Config()
    if args.big:
        config = Config(vocab_size=50_304, context=1024, layers=12, heads=12, width=768)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train(config, args.steps, args.batch_size, device)


if __name__ == "__main__":
    main()
