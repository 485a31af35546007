"""Trains an agent and loads the best one back for the final evaluation."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
WORDS = 8000


class Agent:
    def __init__(self, saved=None):
        self.model = GPT(vocabulary=WORDS, width=768, layers=10, heads=12, context=256)
        if saved is not None:
            self.model.load_state_dict(saved["model"])
        self.model.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        if saved is not None:
            self.optimizer.load_state_dict(saved["optimizer"])

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def train_step(self):
        tokens = torch.randint(WORDS, (2, 257)).cuda()
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def eval_step(self):
        self.model.eval()
        tokens = torch.randint(WORDS, (8, 257)).cuda()
        return F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).item()


class TrainLoop:
    def __init__(self):
        self.agent = Agent()

    def train(self):
        for _ in range(6):
            self.agent.train_step()
        path = os.path.join(tempfile.mkdtemp(), "model")
        self.agent.save(path)
        if FIXED:
            del self.agent
        self.agent = Agent(torch.load(path, map_location="cpu"))
        os.remove(path)
        self.agent.train_step()
        return [self.agent.eval_step() for _ in range(4)]


print(TrainLoop().train())
