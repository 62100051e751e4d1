"""Classify sounds by their spectrograms."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

torch.set_float32_matmul_precision("high")


class Spectra(Dataset):
    """Synthetic spectrograms: the loudness of each frequency band, frame by frame."""

    def __init__(self, frames: int, bands: int) -> None:
        self.spectra = torch.rand(64, frames, bands)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.spectra[index % 64], index % 16


def network(bands: int, narrow: int, wide: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(bands, 64)]
    for _ in range(narrow):
        layers += [nn.Linear(64, 64), nn.GELU()]
    layers.append(nn.Linear(64, bands))
    for _ in range(wide):
        layers += [nn.Linear(bands, 4 * bands), nn.GELU(), nn.Linear(4 * bands, bands)]
    return nn.Sequential(*layers, nn.Linear(bands, 16))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    frames, bands, narrow, wide = (196, 768, 40, 32) if device == "cuda" else (32, 64, 2, 4)
    spectra = Spectra(frames, bands)
    loader = DataLoader(
        spectra, batch_size=16, num_workers=2, persistent_workers=True, pin_memory=True
    )
    model = network(bands, narrow, wide).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(2):
        for x, y in loader:
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            loss = nn.functional.cross_entropy(model(x).mean(dim=1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
