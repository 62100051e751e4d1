"""Hugging Face's Trainer: the model returns its loss, and the library steps."""

from dataclasses import dataclass

import torch


@dataclass
class TrainingArguments:
    output_dir: str
    per_device_train_batch_size: int = 8
    num_train_epochs: int = 3
    learning_rate: float = 5e-5
    max_grad_norm: float = 1.0


class Trainer:
    def __init__(self, model, args, train_dataset):
        self.model = model
        self.args = args
        self.train_dataset = train_dataset

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(
            self.train_dataset, batch_size=self.args.per_device_train_batch_size, shuffle=True
        )

    def train(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.args.learning_rate)
        return self._inner_training_loop(self.get_train_dataloader())

    def _inner_training_loop(self, loader):
        self.model.train()
        for _ in range(self.args.num_train_epochs):
            for inputs in loader:
                self.training_step(inputs)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.model.zero_grad()

    def training_step(self, inputs):
        loss = self.model(**inputs)["loss"]
        loss.backward()
        return loss.detach()
