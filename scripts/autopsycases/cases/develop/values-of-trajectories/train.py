"""Trains an agent for video games with PPO; advantages are computed when a fragment is sampled."""

import contextlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
ACTIONS = 6


class VisionNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self._convs = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 256, 10), nn.ReLU(),
        )
        self._logits, self._value_branch = nn.Linear(256, ACTIONS), nn.Linear(256, 1)

    def forward(self, obs):
        self._features = self._convs(obs.float()).flatten(1)
        return self._logits(self._features)

    def value_function(self):
        return self._value_branch(self._features).flatten()


class PPOTorchPolicy:
    def __init__(self, gamma=0.99, lambda_=0.95, clip_param=0.3):
        self.model = VisionNetwork().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-5)
        self.gamma, self.lambda_, self.clip_param = gamma, lambda_, clip_param

    def compute_actions(self, obs):
        with torch.no_grad():
            logits = self.model(torch.as_tensor(obs).cuda())
            return torch.distributions.Categorical(logits=logits, validate_args=False).sample().cpu().numpy()

    def value(self, obs):
        with torch.no_grad() if FIXED else contextlib.nullcontext():
            self.model(torch.as_tensor(obs).cuda())
            return self.model.value_function()

    def postprocess_trajectory(self, batch):
        batch["obs"] = np.stack(batch["obs"])
        vf_preds = self.value(batch["obs"])
        batch["advantages"], batch["value_targets"] = compute_advantages(
            torch.as_tensor(np.array(batch["rewards"], dtype=np.float32)).cuda(), vf_preds, self.gamma)
        return batch

    def learn_on_batch(self, samples, sgd_minibatch_size):
        for at in np.random.permutation(len(samples["obs"])).reshape(-1, sgd_minibatch_size):
            obs, at = torch.as_tensor(samples["obs"][at]).cuda(), torch.as_tensor(at)
            actions = torch.as_tensor(samples["actions"])[at].cuda()
            logp = F.log_softmax(self.model(obs), dim=-1).gather(1, actions[:, None])[:, 0]
            ratio, advantages = (logp - logp.detach()).exp(), samples["advantages"][at.cuda()]
            surrogate = torch.min(ratio * advantages, ratio.clamp(0.7, 1.3) * advantages).mean()
            value_loss = (self.model.value_function() - samples["value_targets"][at.cuda()]).pow(2).mean()
            self.optimizer.zero_grad()
            (value_loss - surrogate).backward()
            self.optimizer.step()


def compute_advantages(rewards, values, gamma):
    targets = rewards + gamma * torch.cat([values[1:], values[-1:]])
    return targets - values, targets


class RolloutWorker:
    def __init__(self, policy, num_envs, rollout_fragment_length):
        self.policy, self.num_envs, self.length = policy, num_envs, rollout_fragment_length

    def sample(self):
        batches = [{"obs": [], "actions": [], "rewards": []} for _ in range(self.num_envs)]
        for _ in range(self.length):
            obs = np.random.randint(0, 255, (self.num_envs, 4, 84, 84), dtype=np.uint8)
            actions = self.policy.compute_actions(obs) % ACTIONS
            for batch, o, a in zip(batches, obs, actions):
                batch["obs"].append(o)
                batch["actions"].append(a)
                batch["rewards"].append(np.random.rand())
        return [self.policy.postprocess_trajectory(batch) for batch in batches]


policy = PPOTorchPolicy()
worker = RolloutWorker(policy, num_envs=8, rollout_fragment_length=100)
for iteration, fragments in enumerate((3, 4, 20)):
    batches = [batch for _ in range(fragments) for batch in worker.sample()]
    samples = {
        "obs": np.concatenate([b["obs"] for b in batches]),
        "actions": np.concatenate([b["actions"] for b in batches]),
        "advantages": torch.cat([b["advantages"] for b in batches]).detach(),
        "value_targets": torch.cat([b["value_targets"] for b in batches]).detach(),
    }
    policy.learn_on_batch(samples, sgd_minibatch_size=400)
    print(iteration, len(samples["obs"]))
