from collections import defaultdict

import torch


class Trainer:
    def __init__(self, model, train_dataset, batch_size=64, max_iters=2000):
        self.model = model
        self.train_dataset = train_dataset
        self.batch_size = batch_size
        self.max_iters = max_iters
        self.callbacks = defaultdict(list)
        self.iter_num = 0

    def set_callback(self, onevent, callback):
        self.callbacks[onevent] = [callback]

    def run(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4)
        sampler = torch.utils.data.RandomSampler(
            self.train_dataset, replacement=True, num_samples=10**10
        )
        loader = torch.utils.data.DataLoader(
            self.train_dataset, sampler=sampler, batch_size=self.batch_size
        )
        batches = iter(loader)
        while True:
            x, y = next(batches)
            _, self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            for callback in self.callbacks["on_batch_end"]:
                callback(self)
            self.iter_num += 1
            if self.iter_num >= self.max_iters:
                break
