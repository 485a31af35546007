"""Trains a generator of graphs by trajectory balance; a replay buffer keeps what was sampled."""

import random
import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv

policy = Encoder(vocabulary=512, width=384, layers=6, heads=6, context=128, classes=512).cuda()
log_z = torch.zeros(1, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([*policy.parameters(), log_z], lr=1e-4)
draw = random.Random(2)


class ReplayBuffer:
    """The latest trajectories, of which each step draws some."""

    def __init__(self, capacity):
        self.buffer, self.capacity = [], capacity

    def push(self, trajectory):
        if FIXED:
            trajectory = {k: v.detach().cpu() for k, v in trajectory.items()}
        self.buffer = [*self.buffer, trajectory][-self.capacity :]

    def sample(self, n):
        return draw.sample(self.buffer, min(n, len(self.buffer)))


def sampled(states):
    """A trajectory: its states, and the log-probability of each action under the policy."""
    logits = torch.log_softmax(policy(states), dim=-1)
    actions = torch.randint(512, (len(states), 1), device="cuda")
    return {"states": states, "actions": actions, "log_p": logits.gather(1, actions)}


replay = ReplayBuffer(1000)
for step in range(60):
    trajectory = sampled(torch.randint(512, (24, 64)).cuda())
    reward = torch.rand(1, device="cuda")
    loss = (log_z + trajectory["log_p"].sum() - reward) ** 2
    for old in replay.sample(2):
        loss = loss + 0.1 * (old["log_p"].detach().cuda().sum() - reward) ** 2
    optimizer.zero_grad()
    loss.sum().backward()
    optimizer.step()
    again = sampled(trajectory["states"])
    replay.push(again)
