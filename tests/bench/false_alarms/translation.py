"""Train a small T5 to reorder words."""

import torch
from transformers import T5Config, T5ForConditionalGeneration


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
    config = T5Config(vocab_size=1000, decoder_start_token_id=0, **sizes)
    model = T5ForConditionalGeneration(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    model.train()
    for step in range(24):
        source = torch.randint(5, 1000, (8, 64), device=device)
        target = source.flip(1)
        loss = model(input_ids=source, labels=target).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
