"""Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""

import torch
from torch import Tensor, nn


class NeuMF(nn.Module):
    def __init__(self, users: int, items: int, factors: int = 32) -> None:
        super().__init__()
        self.user_gmf = nn.Embedding(users, factors)
        self.item_gmf = nn.Embedding(items, factors)
        self.user_mlp = nn.Embedding(users, 2 * factors)
        self.item_mlp = nn.Embedding(items, 2 * factors)

        layers = []
        width = 4 * factors
        while width > factors:
            layers += [nn.Linear(width, width // 2), nn.ReLU()]
            width //= 2
        self.mlp = nn.Sequential(*layers)
        self.predict = nn.Linear(2 * factors, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], dim=-1))
        return self.predict(torch.cat([gmf, mlp], dim=-1)).squeeze(-1)
