"""PPO on a tiny environment: 32 steps of a rollout, then four updates with minibatches of 8."""

import torch


class Agent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(128, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()
        )
        self.actor = torch.nn.Linear(64, 2)
        self.critic = torch.nn.Linear(64, 1)

    def forward(self, obs, action=None):
        hidden = self.body(obs)
        chosen = torch.distributions.Categorical(logits=self.actor(hidden))
        action = chosen.sample() if action is None else action
        return action, chosen.log_prob(action), self.critic(hidden).squeeze(-1)


class Pole:
    def __init__(self):
        self.state = torch.zeros(128)
        self.drift = torch.eye(128).roll(1, 0) * 0.1

    def step(self, action):
        push = 1.0 if action.item() else -1.0
        self.state = torch.linalg.matrix_exp(self.drift * push) @ self.state + 0.01  # top
        return self.state, 1.0 - self.state.abs().sum().item()


agent, env = Agent(), Pole()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4)
obs = env.state
for _ in range(100):
    rollout = []
    for _ in range(32):
        with torch.no_grad():
            action, log_prob, value = agent(obs)
        following, reward = env.step(action)
        rollout.append((obs, action, log_prob, torch.tensor(reward) - value))
        obs = following
    all_obs, actions, old, advantages = (torch.stack(column) for column in zip(*rollout))
    for at in torch.randperm(32).split(8):
        _, new, value = agent(all_obs[at], actions[at])
        ratio = (new - old[at]).exp()
        loss = -(ratio * advantages[at]).mean() + (value - advantages[at]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
