"""A language model of our own in the Trainer of a library."""

import torch
from transformers import Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, at):
        ids = torch.randint(0, 500, (32,), generator=torch.Generator().manual_seed(at))
        return {"input_ids": ids, "labels": ids}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(500, 128)
        self.block = torch.nn.TransformerEncoderLayer(128, 4, 1024, batch_first=True)
        self.head = torch.nn.Linear(128, 500)

    def forward(self, input_ids, labels):
        hidden = self.block(self.embed(input_ids))  # top
        logits = self.head(hidden)
        return {
            "loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()),
            "logits": logits,
        }


def main():
    args = TrainingArguments(output_dir="out", per_device_train_batch_size=8, num_train_epochs=3)
    trainer = Trainer(model=Model(), args=args, train_dataset=Texts())
    trainer.train()


if __name__ == "__main__":
    main()
