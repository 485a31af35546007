"""Trains an agent with a recurrent policy; experience is kept with the policy's state."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Policy(nn.Module):
    """A convolutional policy with an LSTM."""

    def __init__(self, actions=9, width=512):
        super().__init__()
        self.see = nn.Sequential(
            nn.Conv2d(22, 64, 5, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()
        )
        self.width = nn.Linear(64 * 25, width)
        self.cell = nn.LSTMCell(width, width)
        self.actor, self.critic = nn.Linear(width, actions), nn.Linear(width, 1)

    def forward(self, seen, state):
        state = self.cell(F.relu(self.width(self.see(seen))), state)
        return self.actor(state[0]), self.critic(state[0]), state


policy = Policy().cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
buffer = []


def rollout(steps):
    state = tuple(torch.zeros(1024, 512).cuda() for _ in range(2))
    for _ in range(steps):
        seen = torch.rand(1024, 22, 17, 17).cuda()
        logits, _, state = policy(seen, state)
        if FIXED:
            state = tuple(x.detach() for x in state)
        action = torch.distributions.Categorical(logits=logits.detach(), validate_args=False).sample()
        buffer.append((seen.cpu(), action.cpu(), state))


for update in range(6):
    buffer.clear()
    rollout(48)
    for seen, action, state in buffer[::8]:
        logits, value, _ = policy(seen.cuda(), tuple(x.detach() for x in state))
        loss = F.cross_entropy(logits, action.cuda()) + value.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(update)
