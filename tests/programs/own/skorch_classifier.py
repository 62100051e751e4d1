import torch
from skorch import NeuralNetClassifier


class Net(torch.nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.first = torch.nn.Linear(20, width)
        self.second = torch.nn.Linear(width, 2)

    def forward(self, x):
        return torch.softmax(self.second(torch.relu(self.first(x))), dim=-1)


x = torch.randn(2000, 20)
y = (x.sum(dim=1) > 0).long()
net = NeuralNetClassifier(Net, max_epochs=10, lr=0.1, batch_size=64)
net.fit(x, y)
