"""Lightning, as far as a module, a data module, a Trainer and a command line with subcommands."""

import torch


class LightningModule(torch.nn.Module):
    pass


class LightningDataModule:
    pass


class Trainer:
    def __init__(self, max_epochs=1):
        self.max_epochs = max_epochs

    def fit(self, model, datamodule):
        FitLoop(self, model, datamodule.train_dataloader()).run()


class FitLoop:
    def __init__(self, trainer, model, loader):
        self.trainer = trainer
        self.model = model
        self.loader = loader

    def run(self):
        self.optimizer = self.model.configure_optimizers()
        for _ in range(self.trainer.max_epochs):
            self.advance()

    def advance(self):
        for at, batch in enumerate(self.loader):
            self.optimizer.step(closure=lambda batch=batch, at=at: self.closure(batch, at))

    def closure(self, batch, at):
        loss = self.model.training_step(batch, at)
        self.optimizer.zero_grad()
        loss.backward()
        return loss
