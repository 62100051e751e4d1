"""Train a small CLIP to match images with texts."""

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = {
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    texts = CLIPTextConfig(vocab_size=500, max_position_embeddings=32, eos_token_id=2, **sizes)
    pictures = CLIPVisionConfig(image_size=64, patch_size=16, **sizes)
    config = CLIPConfig(
        text_config=texts.to_dict(), vision_config=pictures.to_dict(), projection_dim=64
    )
    model = CLIPModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
    running = 0.0
    model.train()
    for step in range(30):
        words = torch.randint(5, 500, (16, 32), device=device)
        seen = torch.randn(16, 3, 64, 64, device=device)
        loss = model(input_ids=words, pixel_values=seen, return_loss=True).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % 10 == 9:
            print(f"step {step}: loss {running.item() / 10:.3f}")
            running = 0.0


if __name__ == "__main__":
    main()
