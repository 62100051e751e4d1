"""skorch, as far as fitting a classifier: only the module is the person's."""

import torch


class NeuralNetClassifier:
    def __init__(self, module, max_epochs=10, lr=0.01, batch_size=128):
        self.module = module
        self.max_epochs = max_epochs
        self.lr = lr
        self.batch_size = batch_size

    def fit(self, x, y):
        self.module_ = self.module()
        self.optimizer_ = torch.optim.SGD(self.module_.parameters(), lr=self.lr)
        data = torch.utils.data.TensorDataset(x, y)
        self.fit_loop(torch.utils.data.DataLoader(data, batch_size=self.batch_size))
        return self

    def fit_loop(self, loader):
        for _ in range(self.max_epochs):
            for batch in loader:
                self.train_step(batch)

    def train_step(self, batch):
        def step():
            self.optimizer_.zero_grad()
            x, y = batch
            loss = torch.nn.functional.nll_loss(self.module_(x), y)
            loss.backward()
            return loss

        self.optimizer_.step(step)
