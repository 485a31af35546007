"""Collects trajectories of a driving policy with cameras; the simulator runs on the GPU, too."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
ENVS, CAMERAS, SIZE = 8, 3, 160


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3 * CAMERAS
        for to in (32, 64, 64, 64):
            layers += [nn.Conv2d(channels, to, 3, 2, 1), nn.ReLU()]
            channels = to
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (SIZE // 16) ** 2, 512), nn.ReLU())
        self.action, self.value = nn.Linear(512, 2), nn.Linear(512, 1)

    def forward(self, pixels):
        x = self.body(pixels.flatten(1, 2))
        return self.action(x).tanh(), self.value(x)


class DrivingEnv:
    def __init__(self):
        self.position = torch.zeros(ENVS, 2, device="cuda")

    def observe(self):
        shade = self.position.mean(1).view(ENVS, 1, 1, 1, 1)
        return torch.rand(ENVS, CAMERAS, 3, SIZE, SIZE, device="cuda") + shade

    def step(self, td):
        self.position = self.position + td["action"]
        return {"pixels": self.observe(), "reward": -self.position.norm(dim=1)}

    def rollout(self, max_steps, policy):
        tensordicts = []
        td = {"pixels": self.observe()}
        for _ in range(max_steps):
            td["action"], td["value"] = policy(td["pixels"])
            following = self.step(td)
            td["reward"] = following.pop("reward")
            tensordicts.append({k: v.cpu() for k, v in td.items()} if FIXED else td)
            td = following
        return {k: torch.stack([t[k] for t in tensordicts]) for k in tensordicts[0]}


policy, env = Policy().cuda(), DrivingEnv()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
with torch.no_grad():
    batch = env.rollout(300, policy)
for i in range(0, 300, 10):
    part = {k: v[i : i + 10].cuda().flatten(0, 1) for k, v in batch.items()}
    action, value = policy(part["pixels"])
    loss = (value.squeeze(1) - part["reward"]).square().mean() - action.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
