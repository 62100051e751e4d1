"""Keras on torch, as far as Sequential, compile and fit: the loop and the optimizer are its own."""

import torch


class Dense:
    def __init__(self, units, activation=None):
        self.units = units
        self.activation = activation

    def build(self, width):
        made = [torch.nn.Linear(width, self.units)]
        if self.activation == "relu":
            made.append(torch.nn.ReLU())
        return made, self.units


class layers:
    Dense = Dense


class Sequential:
    def __init__(self, stack):
        self.stack = stack

    def compile(self, optimizer="sgd", loss="mse"):
        self.loss = torch.nn.functional.mse_loss
        self.optimizer_name = optimizer

    def _build(self, width):
        made = []
        for layer in self.stack:
            more, width = layer.build(width)
            made.extend(more)
        self.net = torch.nn.Sequential(*made)
        kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[self.optimizer_name]
        self.optimizer = kind(self.net.parameters(), lr=1e-3)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.net(x), y)
        loss.backward()
        with torch.no_grad():
            self.optimizer.step()
        return loss

    def fit(self, x, y, batch_size=32, epochs=1):
        x, y = torch.as_tensor(x), torch.as_tensor(y)
        self._build(x.shape[1])
        for _ in range(epochs):
            for begin in range(0, len(x), batch_size):
                self.train_step(x[begin : begin + batch_size], y[begin : begin + batch_size])
