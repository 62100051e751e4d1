"""Train a network for semantic segmentation in bfloat16, from files on disk."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    """Images and their masks, one file each."""

    def __init__(self, folder: Path, training: bool) -> None:
        self.files = sorted(folder.glob("*.npz"))
        self.training = training

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with np.load(self.files[index]) as scene:
            picture, mask = torch.from_numpy(scene["picture"]), torch.from_numpy(scene["mask"])
        if self.training and torch.rand(()) < 0.5:
            picture, mask = picture.flip(-1), mask.flip(-1)
        return picture.float() / 255, mask.long()


class Layer(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class Network(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Sequential(Layer(3, 32), Layer(32, 32))
        self.second = nn.Sequential(Layer(32, 64, 2), Layer(64, 64))
        self.up = nn.Conv2d(64, 32, 1)
        self.head = nn.Conv2d(32, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.first(x)
        coarse = F.interpolate(self.up(self.second(fine)), fine.shape[-2:], mode="bilinear")
        return self.head(fine + coarse)


@torch.inference_mode()
def validate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    right = pixels = 0
    for pictures, masks in loader:
        masks = masks.to(device)
        right += (model(pictures.to(device)).argmax(dim=1) == masks).sum().item()
        pixels += masks.numel()
    return right / pixels


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        random = np.random.default_rng(0)
        for index in range(64):
            picture = random.integers(0, 256, (3, 96, 96), dtype=np.uint8)
            mask = random.integers(0, 5, (96, 96), dtype=np.uint8)
            np.savez(folder / f"{index:03}.npz", picture=picture, mask=mask)
        workers = {
            "num_workers": 2,
            "persistent_workers": True,
            "pin_memory": device.type == "cuda",
        }
        training = DataLoader(Scenes(folder, True), batch_size=4, shuffle=True, **workers)
        validation = DataLoader(Scenes(folder, False), batch_size=4, **workers)
        model = Network(5).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        for epoch in range(3):
            model.train()
            for pictures, masks in training:
                pictures = pictures.to(device, non_blocking=True)
                masks = masks.to(device, non_blocking=True)
                with torch.autocast(device.type, torch.bfloat16):
                    loss = F.cross_entropy(model(pictures), masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: {validate(model, validation, device):.1%} right")


if __name__ == "__main__":
    main()
