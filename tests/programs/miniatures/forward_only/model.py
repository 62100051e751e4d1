"""A small vision transformer; run it to see the shape that it gives."""

import torch


class ViT(torch.nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, width, 8, stride=8)
        self.blocks = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(width, 4, 768, batch_first=True),
            12,
            enable_nested_tensor=False,
        )
        self.head = torch.nn.Linear(width, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = self.blocks(x)  # top
        return self.head(x.mean(dim=1))


if __name__ == "__main__":
    model = ViT()
    out = model(torch.randn(2, 3, 64, 64))
    print(out.shape)
