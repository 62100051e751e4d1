import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.small = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.wide = torch.nn.Conv2d(8, 128, 3, padding=1)
        self.head = torch.nn.Linear(128, 10)

    def forward(self, images):
        x = self.small(images).relu()
        x = self.wide(x).relu()  # top
        return self.head(x.mean(dim=(2, 3)))
