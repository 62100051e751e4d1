import os

import torch
from mingpt.model import GPT
from mingpt.trainer import Trainer


class Additions(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, at):
        a, b = divmod(at, 100)
        digits = torch.tensor([int(digit) for digit in f"{a:02}{b:02}{a + b:03}"])
        return digits[:-1], digits[1:]


if __name__ == "__main__":
    os.makedirs("out/adder", exist_ok=True)
    model = GPT(vocab_size=10, block_size=6)
    trainer = Trainer(model, Additions(), batch_size=64)

    def batch_end_callback(trainer):
        if trainer.iter_num % 10 == 0:
            print(f"iter {trainer.iter_num}: train loss {trainer.loss.item():.5f}")

    trainer.set_callback("on_batch_end", batch_end_callback)
    trainer.run()
