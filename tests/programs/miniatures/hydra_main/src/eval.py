import hydra
import torch

from model import Net


@hydra.main(version_base="1.3", config_path="../configs", config_name="train.yaml")
def main(cfg):
    net = Net(cfg.width).eval()
    with torch.no_grad():
        print(net(torch.randn(cfg.batch_size, 64)).argmax(dim=1))


if __name__ == "__main__":
    main()
