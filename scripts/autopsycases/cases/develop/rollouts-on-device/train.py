"""Trains one policy for all drivers of many simulated scenes with PPO."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
WORLDS, AGENTS, STEPS, FEATURES, ACTIONS = 32, 64, 91, 2984, 91
STORAGE = "cpu" if FIXED else "cuda"


class Simulator:
    """Simulates on the GPU; what it returns is written into the same tensors in each step."""

    def __init__(self):
        self.obs = torch.zeros(WORLDS * AGENTS, FEATURES, device="cuda")

    def reset(self):
        return self.obs.normal_()

    def step(self, actions):
        self.obs.add_(actions[:, None] * 0.01)
        return self.obs, torch.rand(len(actions), device="cuda"), torch.zeros(len(actions), device="cuda")


class Policy(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actor, self.critic = nn.Linear(width, ACTIONS), nn.Linear(width, 1)

    def forward(self, obs):
        hidden = self.shared(obs)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


class MaskedRolloutBuffer:
    def __init__(self, buffer_size, n_envs):
        self.buffer_size, self.n_envs = buffer_size, n_envs
        self.reset()

    def reset(self):
        self.observations = torch.zeros(self.buffer_size, self.n_envs, FEATURES, device=STORAGE)
        self.actions, self.rewards, self.values, self.log_probs = (
            torch.zeros(self.buffer_size, self.n_envs, device=STORAGE) for _ in range(4)
        )
        self.pos, self.generator_ready = 0, False

    def add(self, obs, action, reward, value, log_prob):
        self.observations[self.pos].copy_(obs)
        self.actions[self.pos].copy_(action)
        self.rewards[self.pos].copy_(reward)
        self.values[self.pos].copy_(value)
        self.log_probs[self.pos].copy_(log_prob)
        self.pos += 1

    def swap_and_flatten(self, x):
        return x.transpose(0, 1).reshape(self.buffer_size * self.n_envs, *x.shape[2:])

    def get(self, batch_size):
        indices = torch.randperm(self.buffer_size * self.n_envs)
        if not self.generator_ready:
            self.returns = self.rewards.flip(0).cumsum(0).flip(0)
            for name in ("observations", "actions", "values", "log_probs", "returns"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        for at in indices.split(batch_size):
            at = at.to(STORAGE)
            all_of = (self.observations, self.actions, self.values, self.log_probs, self.returns)
            yield [x[at].to("cuda") for x in all_of]


class IPPO:
    def __init__(self, env):
        self.env, self.policy = env, Policy().cuda()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.rollout_buffer = MaskedRolloutBuffer(STEPS, WORLDS * AGENTS)

    def collect_rollouts(self):
        self.rollout_buffer.reset()
        obs = self.env.reset()
        for _ in range(STEPS):
            with torch.no_grad():
                logits, values = self.policy(obs)
                log_probs = F.log_softmax(logits, dim=-1)
                actions = log_probs.argmax(dim=-1)
            new_obs, rewards, _ = self.env.step(actions)
            log_prob = log_probs.gather(1, actions[:, None])[:, 0]
            self.rollout_buffer.add(obs, actions, rewards, values, log_prob)
            obs = new_obs

    def train(self, n_epochs=2, batch_size=16_384):
        for _ in range(n_epochs):
            for obs, actions, values, old_log_prob, returns in self.rollout_buffer.get(batch_size):
                logits, new_values = self.policy(obs)
                log_prob = F.log_softmax(logits, dim=-1).gather(1, actions.long()[:, None])[:, 0]
                ratio, advantages = torch.exp(log_prob - old_log_prob), returns - values
                policy_loss = -torch.min(advantages * ratio, advantages * ratio.clamp(0.8, 1.2)).mean()
                loss = policy_loss + 0.5 * F.mse_loss(new_values, returns)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        print(loss.item())

    def learn(self, iterations):
        for _ in range(iterations):
            self.collect_rollouts()
            self.train()


IPPO(Simulator()).learn(2)
