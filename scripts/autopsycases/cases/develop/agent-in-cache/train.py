"""Trains a dialogue agent, then loads the best one for a last validation."""

import functools
import gc
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


class TransformerAgent:
    def __init__(self, model_file=None, train=True):
        self.model = GPT(vocabulary=8008, width=1280, layers=16, heads=20, context=128).cuda()
        if model_file:
            self.model.load_state_dict(torch.load(model_file, map_location="cpu"))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-5, fused=True) if train else None

    def train_step(self, tokens):
        self.model.train()
        logits = self.model(tokens[:, :-1].cuda())
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten().cuda())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def eval_step(self, tokens):
        self.model.eval()
        logits = self.model(tokens[:, :-1].cuda())
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten().cuda()).item()

    def save(self, path):
        torch.save(self.model.state_dict(), path)


class Teacher:
    def __init__(self, examples):
        self.examples = examples

    def act(self, batchsize=4):
        return torch.randint(8008, (batchsize, 128))


class BatchWorld:
    def __init__(self, teacher, agent):
        self.agents = [teacher, agent]

    def count(self):
        return self.agents[0].examples

    @functools.lru_cache(maxsize=1)
    def cached_num_examples(self):
        return self.count()

    def num_examples(self):
        if not FIXED:
            return self.cached_num_examples()
        if not hasattr(self, "_num_examples"):
            self._num_examples = self.count()
        return self._num_examples

    def parley(self, train):
        teacher, agent = self.agents
        return (agent.train_step if train else agent.eval_step)(teacher.act())


def run_eval(world, batches=4):
    return sum(world.parley(train=False) for _ in range(batches)) / batches, world.num_examples()


class TrainLoop:
    def __init__(self, model_file):
        self.model_file, self.agent = model_file, TransformerAgent()
        self.world = BatchWorld(Teacher(examples=64), self.agent)

    def train(self):
        for step in range(self.world.num_examples() // 8):
            print(step, self.world.parley(train=True))
        print("valid", run_eval(self.world))
        self.agent.save(self.model_file)


with tempfile.TemporaryDirectory() as folder:
    loop = TrainLoop(os.path.join(folder, "model"))
    loop.train()
    model_file = loop.model_file
    del loop
    gc.collect()
    agent = TransformerAgent(model_file, train=False)
    for _ in range(2):
        print("final", run_eval(BatchWorld(Teacher(examples=640), agent)))
