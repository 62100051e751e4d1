"""Train a decoder of transformers to predict the next word, accumulating gradients over two
batches.
"""

import argparse

import torch
import transformers

SMALL = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 1000, "n_embd": 128, "n_layer": 2, "n_head": 4},
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", SMALL | {"intermediate_size": 256}),
    "mistral": (
        "MistralConfig",
        "MistralForCausalLM",
        SMALL | {"intermediate_size": 256, "num_key_value_heads": 2},
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        SMALL | {"ffn_dim": 256, "word_embed_proj_dim": 128},
    ),
}
LENGTH, BATCH, ACCUMULATED = 128, 4, 2


def batch_of(words: torch.Tensor, device: torch.device) -> torch.Tensor:
    starts = torch.randint(len(words) - LENGTH, (BATCH,)).tolist()
    return torch.stack([words[start : start + LENGTH] for start in starts]).to(device)


@torch.no_grad()
def estimate(model: torch.nn.Module, words: torch.Tensor, device: torch.device) -> float:
    model.eval()
    losses = torch.zeros(4)
    for index in range(4):
        batch = batch_of(words, device)
        losses[index] = model(input_ids=batch, labels=batch).loss
    model.train()
    return losses.mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config, model, sizes = MODELS[args.model]
    model = getattr(transformers, model)(getattr(transformers, config)(**sizes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    words = torch.randint(5, 1000, (20_000,))
    model.train()
    for step in range(24):
        for _ in range(ACCUMULATED):
            batch = batch_of(words, device)
            loss = model(input_ids=batch, labels=batch).loss / ACCUMULATED
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step}: validation loss {estimate(model, words, device):.3f}")


if __name__ == "__main__":
    main()
