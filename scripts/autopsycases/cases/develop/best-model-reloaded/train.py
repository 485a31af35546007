"""Trains an agent and loads the best one back for the final evaluation."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
WORDS = 8000


class Agent:
    def __init__(self, weights=None):
        self.model = GPT(vocabulary=WORDS, width=768, layers=10, heads=12, context=256)
        if weights is not None:
            self.model.load_state_dict(weights)
        self.model.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def train_step(self):
        tokens = torch.randint(WORDS, (4, 257)).cuda()
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def eval_step(self):
        self.model.eval()
        tokens = torch.randint(WORDS, (32, 257)).cuda()
        return F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).item()


class TrainLoop:
    def __init__(self):
        self.agent = Agent()

    def train(self):
        for _ in range(6):
            self.agent.train_step()
        best = {k: v.cpu() for k, v in self.agent.model.state_dict().items()}
        if FIXED:
            del self.agent
        self.agent = Agent(best)
        self.agent.train_step()
        return [self.agent.eval_step() for _ in range(4)]


print(TrainLoop().train())
