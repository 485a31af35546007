"""Plays a trained policy in a simulation of many legged robots."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
ROBOTS, OBSERVATIONS, ACTIONS = 4096, 48, 8


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(OBSERVATIONS, 256), nn.ELU(), nn.Linear(256, 64), nn.ELU())
        self.actor = nn.Sequential(
            nn.Linear(OBSERVATIONS + 64, 512),
            nn.ELU(),
            nn.Linear(512, 256),
            nn.ELU(),
            nn.Linear(256, ACTIONS),
        )

    def act_teacher(self, obs):
        return self.actor(torch.cat([obs, self.teacher(obs)], dim=-1))


class Simulation:
    def __init__(self):
        self.positions = torch.zeros(ROBOTS, ACTIONS, device="cuda")
        self.velocities = torch.zeros(ROBOTS, ACTIONS, device="cuda")
        self.last = torch.zeros(ROBOTS, ACTIONS, device="cuda")
        self.commands = torch.rand(ROBOTS, OBSERVATIONS - 3 * ACTIONS, device="cuda")

    def step(self, actions):
        torques = 20.0 * (actions * 0.25 - self.positions) - 0.5 * self.velocities
        self.velocities = self.velocities + 0.005 * torques
        self.positions = self.positions + 0.005 * self.velocities
        self.last = actions
        return self.observe()

    def observe(self):
        return torch.cat([self.commands, self.positions, self.velocities, self.last], dim=-1)


def play():
    policy = Policy().cuda().eval()
    env = Simulation()
    obs = env.observe()
    for i in range(300):
        if FIXED:
            with torch.no_grad():
                actions = policy.act_teacher(obs)
        else:
            actions = policy.act_teacher(obs)
        obs = env.step(actions)
    print(obs.mean().item())


play()
