"""REINFORCE: episodes of random length, a policy called once a step of the game."""

import random

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, state):
        return torch.distributions.Categorical(logits=self.head(self.body(state).relu()))


def episode(policy):
    state, chances = torch.zeros(4), []
    for _ in range(random.randint(5, 15)):
        choice = policy(state)  # forward
        action = choice.sample()
        chances.append(choice.log_prob(action))
        state = state + torch.randn(4)
    return torch.stack(chances), random.random()


def main():
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(300):  # loop
        chances, reward = episode(policy)
        loss = -(chances * reward).sum()
        optimizer.zero_grad()
        loss.backward()  # backward
        optimizer.step()  # step


if __name__ == "__main__":
    main()
