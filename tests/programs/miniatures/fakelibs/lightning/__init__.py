from .pytorch import LightningDataModule, LightningModule, Trainer

__all__ = ["LightningDataModule", "LightningModule", "Trainer"]
