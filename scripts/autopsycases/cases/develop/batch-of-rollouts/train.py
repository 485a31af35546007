"""Trains an agent on images with PPO: many workers fill a train batch, then steps with mini-batches of it."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
TRAIN_BATCH, MINI_BATCH, ACTIONS = 16_000, 2000, 6


class VisionNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 10 * 10, 256), nn.ReLU(),
        )  # fmt: skip
        self.logits, self.value = nn.Linear(256, ACTIONS), nn.Linear(256, 1)

    def forward(self, obs):
        x = self.features(obs)
        return F.log_softmax(self.logits(x), dim=-1), self.value(x).squeeze(-1)


class TorchPolicy:
    def __init__(self):
        self.model = VisionNetwork().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-5)

    def load_batch_into_buffer(self, batch):
        self.loaded = batch if FIXED else {k: v.cuda() for k, v in batch.items()}

    def learn_on_loaded_batch(self, offset):
        batch = {k: v[offset : offset + MINI_BATCH].cuda() for k, v in self.loaded.items()}
        log_probs, values = self.model(batch["obs"])
        log_prob = log_probs.gather(1, batch["actions"][:, None])[:, 0]
        ratio = torch.exp(log_prob - batch["action_logp"])
        advantages = batch["advantages"]
        policy_loss = -torch.min(ratio * advantages, ratio.clamp(0.7, 1.3) * advantages).mean()
        loss = policy_loss + F.mse_loss(values, batch["value_targets"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def collect(size):
    """What the workers sampled."""
    return {
        "obs": torch.zeros(size, 4, 84, 84),
        "new_obs": torch.zeros(size, 4, 84, 84),
        "actions": torch.randint(ACTIONS, (size,)),
        "action_logp": torch.zeros(size),
        "advantages": torch.zeros(size),
        "value_targets": torch.zeros(size),
    }


policy = TorchPolicy()
for iteration in range(2):
    policy.load_batch_into_buffer(collect(TRAIN_BATCH))
    for epoch in range(2):
        for offset in range(0, TRAIN_BATCH, MINI_BATCH):
            loss = policy.learn_on_loaded_batch(offset)
    print(iteration, loss)
