import torch
from skorch import NeuralNetClassifier


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(256, 1024)
        self.deep = torch.nn.Linear(1024, 1024)
        self.out = torch.nn.Linear(1024, 4)

    def forward(self, x):
        x = torch.relu(self.wide(x))
        x = torch.relu(self.deep(x))  # top
        return torch.log_softmax(self.out(x), dim=-1)


x = torch.randn(2048, 256)
y = (x.sum(dim=1) > 0).long()

net = NeuralNetClassifier(Net, max_epochs=10, lr=0.1, batch_size=64)
net.fit(x, y)
