"""Collects experience with a recurrent policy, then trains on what the replay buffer has."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
UNROLL, ENVIRONMENTS = 256, 64


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
        )
        self.cell = nn.GRUCell(512, 512)
        self.actions = nn.Linear(512, 18)

    def forward(self, frames, state):
        state = self.cell(self.eyes(frames), state)
        return self.actions(state), state


policy = Policy().cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)


def observe():
    return torch.rand(ENVIRONMENTS, 4, 84, 84).cuda()


def unroll(length):
    state, experience = torch.zeros(ENVIRONMENTS, 512, device="cuda"), []
    frames = observe()
    with torch.set_grad_enabled(not FIXED):
        for _ in range(length):
            logits, state = policy(frames, state)
            action = logits.argmax(dim=-1)
            experience.append((frames.cpu(), action.cpu(), logits.log_softmax(dim=-1)))
            frames = observe()
    return experience


def train_from(experience):
    for frames, action, old in experience[:16]:
        logits, _ = policy(frames.cuda(), torch.zeros(ENVIRONMENTS, 512, device="cuda"))
        ratio = (logits.log_softmax(dim=-1) - old.detach()).exp()
        loss = (
            -ratio.gather(1, action.cuda()[:, None]).mean() + 0.01 * F.softmax(logits, dim=-1).square().mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


for iteration, length in enumerate((32, 64, UNROLL)):
    train_from(unroll(length))
    print("iteration", iteration)
