import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI


class AutoEncoder(LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)
        )
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 784)
        )

    def training_step(self, batch, batch_idx):
        x, _ = batch
        z = self.encoder(x)  # top
        return torch.nn.functional.mse_loss(self.decoder(z), x)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


class Pictures(LightningDataModule):
    def train_dataloader(self):
        data = torch.utils.data.TensorDataset(torch.rand(1024, 784), torch.zeros(1024))
        return torch.utils.data.DataLoader(data, batch_size=128, shuffle=True)


def cli_main():
    LightningCLI(AutoEncoder, Pictures)


if __name__ == "__main__":
    cli_main()
