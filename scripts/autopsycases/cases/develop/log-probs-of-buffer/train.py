"""Trains an agent on images with PPO: the log-probabilities of the buffer, then small batches of it."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
STEPS, BATCH, ACTIONS = 8192, 256, 6


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3),
            nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.policy, self.value = nn.Linear(512, ACTIONS), nn.Linear(512, 1)

    def forward(self, observations):
        x = self.features(observations.float() / 255)
        return F.log_softmax(self.policy(x), dim=-1), self.value(x).squeeze(-1)


def process(agent, observations, actions):
    """Adds the log-probabilities under the old policy to what was collected."""
    size = BATCH if FIXED else len(observations)
    old, values = [], []
    with torch.no_grad():
        for o, a in zip(observations.split(size), actions.split(size)):
            log_probs, value = agent(o.cuda())
            old.append(log_probs.gather(1, a.cuda()[:, None]).squeeze(1))
            values.append(value)
    return torch.cat(old), torch.cat(values)


agent = Agent().cuda()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
for epoch in range(2):
    steps = STEPS * (1 + epoch)  # the second collection is of more environments
    observations = torch.randint(256, (steps, 4, 84, 84), dtype=torch.uint8)
    actions, returns = torch.randint(ACTIONS, (steps,)), torch.randn(steps)
    old, values = process(agent, observations, actions)
    for i in range(0, steps, BATCH):
        part = slice(i, i + BATCH)
        log_probs, value = agent(observations[part].cuda())
        chosen = log_probs.gather(1, actions[part].cuda()[:, None]).squeeze(1)
        advantage = returns[part].cuda() - values[part]
        ratio = (chosen - old[part]).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = loss + 0.5 * F.mse_loss(value, returns[part].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
