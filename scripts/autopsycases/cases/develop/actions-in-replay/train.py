"""Runs episodes of many agents, and stores their transitions to learn from."""

import random
import sys
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
AGENTS, OBSERVATIONS, ACTIONS, STEPS, PARALLEL = 27, 180, 6, 20, 16


class Agent(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.fc1 = nn.Linear(OBSERVATIONS, width)
        self.rnn = nn.GRUCell(width, width)
        self.fc2 = nn.Linear(width, ACTIONS)
        self.width = width

    def forward(self, obs, hidden):
        hidden = self.rnn(F.relu(self.fc1(obs)), hidden)
        return torch.tanh(self.fc2(hidden)), hidden


class EpisodeRunner:
    def __init__(self, agent):
        self.agent = agent

    def run(self):
        n = AGENTS * PARALLEL
        hidden = torch.zeros(n, self.agent.width, device="cuda")
        episode = {"obs": [], "actions": []}
        for t in range(STEPS):
            obs = torch.rand(n, OBSERVATIONS).cuda()
            actions, hidden = self.agent(obs, hidden)
            episode["obs"].append(obs)
            episode["actions"].append(actions.detach() if FIXED else actions)
        return {name: torch.stack(values) for name, values in episode.items()}


class Learner:
    def __init__(self, agent):
        self.agent = agent
        self.critic = nn.Sequential(
            nn.Linear(OBSERVATIONS + ACTIONS, 512), nn.ReLU(), nn.Linear(512, 1)
        ).cuda()
        self.optimizer = torch.optim.RMSprop([*agent.parameters(), *self.critic.parameters()], lr=5e-4)

    def train(self, episode):
        actions = episode["actions"].detach()
        value = self.critic(torch.cat([episode["obs"], actions], dim=-1))
        hidden = torch.zeros(actions.shape[1], self.agent.width, device="cuda")
        policy = []
        for obs in episode["obs"]:
            action, hidden = self.agent(obs, hidden)
            policy.append(action)
        policy = torch.stack(policy)
        loss = F.mse_loss(value, torch.rand_like(value))
        loss = loss - self.critic(torch.cat([episode["obs"], policy], dim=-1)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


agent = Agent().cuda()
runner, learner, replay = EpisodeRunner(agent), Learner(agent), deque(maxlen=5000)
for episode in range(40):
    replay.append(runner.run())
    learner.train(random.choice(replay))
print(len(replay))
