"""Goes on with a training from a checkpoint of the model and of the optimizer."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


class Trainer:
    def __init__(self, folder):
        self.folder = folder
        self.model = GPT(width=512, layers=8, heads=8).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)

    def save(self):
        torch.save(self.model.state_dict(), os.path.join(self.folder, "pytorch_model.bin"))
        torch.save(self.optimizer.state_dict(), os.path.join(self.folder, "optimizer.pt"))

    def load_optimizer(self, checkpoint):
        device = "cpu" if FIXED else "cuda"
        state = torch.load(os.path.join(checkpoint, "optimizer.pt"), map_location=device)
        self.optimizer.load_state_dict(state)
        return state["param_groups"]

    def step(self):
        tokens = torch.randint(50257, (2, 512)).cuda()
        logits = self.model(tokens)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


with tempfile.TemporaryDirectory() as folder:
    first = Trainer(folder)
    first.step()
    first.save()
    del first
    torch.cuda.empty_cache()
    trainer = Trainer(folder)
    trainer.model.load_state_dict(
        torch.load(os.path.join(folder, "pytorch_model.bin"), map_location="cpu"), strict=True
    )
    trainer.load_optimizer(folder)
    for step in range(3):
        trainer.step()
        print(step)
