"""Trains a Q network on stacked frames of games, which a replay buffer keeps."""

import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
GAMES = 16


class Stack:
    """Four frames that are stacked when they are read."""

    def __init__(self, frames):
        self.frames = list(frames)

    def tensor(self):
        return torch.cat(self.frames, dim=1)


class Buffer:
    def __init__(self, capacity):
        self.capacity, self.entries = capacity, []

    def store(self, state, action, reward, after):
        if len(self.entries) == self.capacity:
            self.entries.pop(0)
        self.entries.append((state, action, reward, after))

    def sample(self, n):
        states, actions, rewards, after = zip(*random.sample(self.entries, n))
        read = lambda x: torch.cat([s.tensor() if FIXED else s for s in x])
        return read(states), torch.cat(actions), torch.cat(rewards), read(after)


class Agent:
    def __init__(self):
        self.q = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
            nn.Linear(512, 6),
        ).cuda()
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-4)
        self.buffer = Buffer(100_000)

    def act(self, state):
        with torch.no_grad():
            return self.q(state).argmax(dim=1)

    def train(self):
        states, actions, rewards, after = self.buffer.sample(4)
        with torch.no_grad():
            wanted = rewards + 0.99 * self.q(after).amax(dim=1)
        values = self.q(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(values, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def frame():
    return torch.rand(GAMES, 1, 84, 84).to("cuda")


agent = Agent()
frames = [frame() for _ in range(4)]
state = Stack(frames) if FIXED else torch.cat(frames, dim=1)
for step in range(4000):
    action = agent.act(state.tensor() if FIXED else state)
    frames = frames[1:] + [frame()]
    after = Stack(frames) if FIXED else torch.cat(frames, dim=1)
    agent.buffer.store(state, action, torch.rand(GAMES).cuda(), after)
    state = after
    if step > 100 and step % 4 == 0:
        agent.train()
print(len(agent.buffer.entries))
