"""Trains a double DQN from a replay memory in host memory."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class QNetwork(nn.Module):
    """Residual blocks on stacked frames, as in IMPALA."""

    def __init__(self, actions=18):
        super().__init__()
        layers, channels = [], 4
        for to in (32, 64, 64):
            layers += [nn.Conv2d(channels, to, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.ReLU()]
            layers += [nn.Conv2d(to, to, 3, padding=1), nn.ReLU(), nn.Conv2d(to, to, 3, padding=1), nn.ReLU()]
            channels = to
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.advantage = nn.Sequential(nn.Linear(64 * 121, 512), nn.ReLU(), nn.Linear(512, actions))
        self.value = nn.Sequential(nn.Linear(64 * 121, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, frames):
        x = self.body(frames)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=1, keepdim=True)


online = QNetwork().cuda()
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
for update in range(6):
    frames, following = (torch.rand(1024, 4, 84, 84).cuda() for _ in range(2))
    actions, rewards = torch.randint(18, (1024, 1)).cuda(), torch.rand(1024).cuda()
    with torch.set_grad_enabled(not FIXED):
        best = online(following).argmax(dim=1, keepdim=True)
        wanted = rewards + 0.99 * target(following).gather(1, best).squeeze(1)
    q = online(frames).gather(1, actions).squeeze(1)
    loss = F.smooth_l1_loss(q, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 3 == 2:
        target.load_state_dict(online.state_dict())
