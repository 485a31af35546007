"""Tunes a language model in stages, each of which starts from the model that the last one saved."""

import gc
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 32_000, 512, 4


class Pipeline:
    def __init__(self):
        self.model = self.optimizer = None

    def load(self, saved):
        """Makes the model of a stage, with the weights that were saved."""
        if FIXED:
            self.model = self.optimizer = None
            gc.collect()
        model = GPT(VOCABULARY, width=1024, layers=12, heads=16, context=CONTEXT)
        if saved is not None:
            model.load_state_dict(saved)
        model.cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        self.tune(model, optimizer)
        self.model, self.optimizer = model, optimizer

    def tune(self, model, optimizer):
        for step in range(4):
            tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(step, loss.item())

    def run(self, stages):
        saved = None
        for stage in range(stages):
            print("stage", stage)
            self.load(saved)
            saved = {k: v.cpu() for k, v in self.model.state_dict().items()}


Pipeline().run(3)
