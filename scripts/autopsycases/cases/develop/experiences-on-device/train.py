"""Trains an agent for a game of jumps with double Q learning and a replay memory."""

import random
import sys
from collections import deque

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class MarioNet(nn.Module):
    def __init__(self, c, output_dim):
        super().__init__()
        self.online = self.build(c, output_dim)
        self.target = self.build(c, output_dim)
        self.target.load_state_dict(self.online.state_dict())
        for p in self.target.parameters():
            p.requires_grad = False

    def build(self, c, output_dim):
        return nn.Sequential(
            nn.Conv2d(c, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, output_dim),
        )

    def forward(self, input, model):
        return self.online(input) if model == "online" else self.target(input)


class Environment:
    """Four grey frames of 84 pixels, as the wrappers give them."""

    def reset(self):
        self.left = 200
        return torch.rand(4, 84, 84).numpy()

    def step(self, action):
        self.left -= 1
        return torch.rand(4, 84, 84).numpy(), 1.0, self.left == 0


class Mario:
    def __init__(self, state_dim, action_dim):
        self.action_dim = action_dim
        self.net = MarioNet(state_dim[0], action_dim).cuda()
        self.exploration_rate, self.curr_step = 1.0, 0
        self.memory = deque(maxlen=100_000)
        self.batch_size, self.gamma = 32, 0.9
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.00025)
        self.loss_fn = nn.SmoothL1Loss()
        self.burnin, self.learn_every, self.sync_every = 3000, 3, 2000

    def act(self, state):
        if random.random() < self.exploration_rate:
            action = random.randrange(self.action_dim)
        else:
            state = torch.tensor(state).cuda().unsqueeze(0)
            action = torch.argmax(self.net(state, model="online"), dim=1).item() % self.action_dim
        self.exploration_rate = max(0.1, self.exploration_rate * 0.9999)
        self.curr_step += 1
        return action

    def cache(self, state, next_state, action, reward, done):
        experience = [torch.tensor(x) for x in (state, next_state, [action], [reward], [done])]
        if not FIXED:
            experience = [x.cuda() for x in experience]
        self.memory.append(tuple(experience))

    def recall(self):
        batch = random.sample(self.memory, self.batch_size)
        state, next_state, action, reward, done = map(torch.stack, zip(*batch))
        if FIXED:
            state, next_state, action, reward, done = (
                x.cuda() for x in (state, next_state, action, reward, done)
            )
        return state, next_state, action.squeeze(), reward.squeeze(), done.squeeze()

    def td_estimate(self, state, action):
        return self.net(state, model="online").gather(1, action.unsqueeze(1)).squeeze(1)

    @torch.no_grad()
    def td_target(self, reward, next_state, done):
        best_action = torch.argmax(self.net(next_state, model="online"), dim=1)
        next_q = self.net(next_state, model="target").gather(1, best_action.unsqueeze(1)).squeeze(1)
        return (reward + (1 - done.float()) * self.gamma * next_q).float()

    def learn(self):
        if self.curr_step % self.sync_every == 0:
            self.net.target.load_state_dict(self.net.online.state_dict())
        if self.curr_step < self.burnin or self.curr_step % self.learn_every != 0:
            return
        state, next_state, action, reward, done = self.recall()
        td_est = self.td_estimate(state, action)
        td_tgt = self.td_target(reward, next_state, done)
        loss = self.loss_fn(td_est, td_tgt)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


env = Environment()
mario = Mario(state_dim=(4, 84, 84), action_dim=2)
for e in range(30):
    state = env.reset()
    while True:
        action = mario.act(state)
        next_state, reward, done = env.step(action)
        mario.cache(state, next_state, action, reward, done)
        mario.learn()
        state = next_state
        if done:
            break
