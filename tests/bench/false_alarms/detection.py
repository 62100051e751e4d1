"""Train a small YOLOS to detect objects in images."""

import torch
from transformers import YolosConfig, YolosForObjectDetection


def things(count: int, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """A few boxes per image: center and size, relative to the image."""
    return [
        {
            "class_labels": torch.randint(5, (3,), device=device),
            "boxes": torch.rand(3, 4, device=device) * 0.4 + 0.1,
        }
        for _ in range(count)
    ]


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = YolosConfig(
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
        image_size=[96, 96],
        patch_size=16,
        num_detection_tokens=20,
        num_labels=5,
        use_mid_position_embeddings=False,
    )
    model = YolosForObjectDetection(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.train()
    for step in range(24):
        pictures = torch.randn(4, 3, 96, 96, device=device)
        loss = model(pixel_values=pictures, labels=things(4, device)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
