import argparse

import torch
from evaluate import evaluate
from unet import UNet


def train_model(model, epochs, batch_size):
    data = torch.utils.data.TensorDataset(torch.rand(40, 3, 64, 64), torch.randint(2, (40, 64, 64)))
    train_set, val_set = torch.utils.data.random_split(data, [24, 16])
    train_loader = torch.utils.data.DataLoader(train_set, batch_size=batch_size, shuffle=True)
    val_loader = torch.utils.data.DataLoader(val_set, batch_size=batch_size)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-5, momentum=0.999)
    global_step = 0
    for _ in range(epochs):
        for images, masks in train_loader:
            loss = torch.nn.functional.cross_entropy(model(images), masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            global_step += 1
            if global_step % 2 == 0:
                evaluate(model, val_loader)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the UNet on images and target masks")
    parser.add_argument("--epochs", "-e", type=int, default=20)
    parser.add_argument("--batch-size", "-b", dest="batch_size", type=int, default=2)
    args = parser.parse_args()
    train_model(UNet(), args.epochs, args.batch_size)
