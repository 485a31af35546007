"""Learns to play a game of many steps with the score function."""

import random
import sys

import torch
from torch import nn
from torch.distributions import Categorical

FIXED = "--fixed" in sys.argv
ENVIRONMENTS = 64


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(6400, 1024)
        self.affine2 = nn.Linear(1024, 3)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return torch.softmax(self.affine2(torch.relu(self.affine1(x))), dim=1)


policy = Policy().cuda()
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)


def select_action(state):
    probs = policy(state)
    m = Categorical(probs, validate_args=False)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action


def finish():
    rewards = torch.tensor(policy.rewards).cuda()
    returns = rewards.flip(0).cumsum(0).flip(0)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(torch.stack(policy.saved_log_probs).mean(dim=1) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:], policy.saved_log_probs[:]


def play(steps):
    before = torch.rand(ENVIRONMENTS, 6400)
    for t in range(steps):
        frame = torch.rand(ENVIRONMENTS, 6400)
        select_action((frame - before).cuda())
        before = frame
        policy.rewards.append(random.random())
        if FIXED and len(policy.rewards) == 300:
            finish()
    if policy.rewards:
        finish()


for episode, steps in enumerate((700, 900, 1500)):
    play(steps)
    print(episode, steps)
