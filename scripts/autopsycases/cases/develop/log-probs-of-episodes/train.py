"""Trains an agent for video games with PPO on what four environments have collected."""

import sys

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FIXED = "--fixed" in sys.argv
torch.distributions.Distribution.set_default_validate_args(False)


class DQN(nn.Module):
    def __init__(self, c=4, feature_dim=512):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(c, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(), nn.Flatten(), nn.Linear(3136, feature_dim), nn.ReLU(),
        )

    def forward(self, obs):
        return self.net(torch.as_tensor(obs, device="cuda", dtype=torch.float32) / 255.0)


class Batch:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)

    def __len__(self):
        return len(self.obs)

    def split(self, size):
        for at in np.split(np.random.permutation(len(self)), range(size, len(self), size)):
            yield Batch(**{k: v[at] for k, v in self.__dict__.items()})


class PPOPolicy(nn.Module):
    def __init__(self, actions=6, max_batchsize=256):
        super().__init__()
        self.preprocess = DQN()
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)
        self.max_batchsize, self.eps_clip, self.gamma = max_batchsize, 0.2, 0.99

    def forward(self, obs):
        return Categorical(logits=self.actor(self.preprocess(obs)))

    def value(self, obs):
        return self.critic(self.preprocess(obs)).flatten()

    @torch.no_grad()
    def process_fn(self, batch):
        values = [self.value(batch.obs[i : i + self.max_batchsize])
                  for i in range(0, len(batch), self.max_batchsize)]
        batch.v_s = torch.cat(values)
        batch.returns = torch.as_tensor(batch.rew, device="cuda") + self.gamma * batch.v_s.roll(-1)
        batch.act = torch.as_tensor(batch.act, device="cuda")
        if FIXED:
            size = self.max_batchsize
            logp = [self(batch.obs[i : i + size]).log_prob(batch.act[i : i + size])
                    for i in range(0, len(batch), size)]
            batch.logp_old = torch.cat(logp)
        else:
            batch.logp_old = self(batch.obs).log_prob(batch.act)
        return batch

    def learn(self, batch, optim, repeat):
        for _ in range(repeat):
            for b in batch.split(self.max_batchsize):
                ratio = (self(b.obs).log_prob(b.act) - b.logp_old).exp()
                adv = b.returns - b.v_s
                surr = torch.min(ratio * adv, ratio.clamp(1 - self.eps_clip, 1 + self.eps_clip) * adv)
                loss = -surr.mean() + 0.25 * (b.returns - self.value(b.obs)).pow(2).mean()
                optim.zero_grad()
                loss.backward()
                optim.step()


def collect(policy, steps, envs):
    obs = np.zeros((steps * envs, 4, 84, 84), dtype=np.uint8)
    act = np.zeros(steps * envs, dtype=np.int64)
    rew = np.random.rand(steps * envs).astype(np.float32)
    with torch.no_grad():
        for t in range(0, steps * envs, envs):
            act[t : t + envs] = policy(obs[t : t + envs]).sample().cpu().numpy() % 6
    return Batch(obs=obs, act=act, rew=rew)


policy = PPOPolicy().cuda()
optim = torch.optim.Adam(policy.parameters(), lr=2.5e-4)
for epoch, steps in enumerate((128, 128, 4000)):
    batch = policy.process_fn(collect(policy, steps, envs=4))
    policy.learn(batch, optim, repeat=1)
    print(epoch, len(batch))
