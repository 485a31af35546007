"""Trains a language model and saves its checkpoints in a thread."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


def apply_to_collection(data, function):
    if torch.is_tensor(data):
        return function(data)
    if isinstance(data, dict):
        return {k: apply_to_collection(v, function) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(apply_to_collection(v, function) for v in data)
    return data


class CheckpointIO:
    def save_checkpoint(self, checkpoint, path):
        torch.save(checkpoint, path)


class AsyncCheckpointIO:
    """Saves in a thread what it copies first, since the training goes on."""

    def __init__(self, checkpoint_io):
        self.checkpoint_io = checkpoint_io
        self._executor = ThreadPoolExecutor(max_workers=1)

    @staticmethod
    def _clone_tensor(t):
        return t.detach().cpu().clone() if FIXED else t.detach().clone()

    def save_checkpoint(self, checkpoint, path):
        snapshot = apply_to_collection(checkpoint, self._clone_tensor)
        self._executor.submit(self.checkpoint_io.save_checkpoint, snapshot, path)

    def teardown(self):
        self._executor.shutdown(wait=True)


class Trainer:
    def __init__(self, model, optimizer, plugin, every_n_train_steps):
        self.model, self.optimizer, self.plugin = model, optimizer, plugin
        self.every_n_train_steps = every_n_train_steps

    def dump_checkpoint(self, step):
        return {
            "global_step": step,
            "state_dict": self.model.state_dict(),
            "optimizer_states": [self.optimizer.state_dict()],
        }

    def fit(self, batches):
        for step, tokens in enumerate(batches, 1):
            tokens = tokens.cuda()
            logits = self.model(tokens)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(step, loss.item())
            del logits, loss
            if step % self.every_n_train_steps == 0:
                self.plugin.save_checkpoint(self.dump_checkpoint(step), os.devnull)
        self.plugin.teardown()


model = GPT(50257, width=1024, layers=20, heads=16, context=512).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
trainer = Trainer(model, optimizer, AsyncCheckpointIO(CheckpointIO()), every_n_train_steps=4)
trainer.fit(torch.randint(50257, (4, 256)) for _ in range(6))
