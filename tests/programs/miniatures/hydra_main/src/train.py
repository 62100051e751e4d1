import hydra
import torch

from model import Net


def train(cfg):
    net = Net(cfg.width)
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=0.9)
    for _ in range(cfg.steps):
        x, y = torch.randn(cfg.batch_size, 64), torch.randint(10, (cfg.batch_size,))
        loss = torch.nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg):
    train(cfg)


if __name__ == "__main__":
    main()
