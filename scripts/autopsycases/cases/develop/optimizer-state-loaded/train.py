"""Goes on with a training from a checkpoint of the model and of the optimizer."""

import copy
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv


def network():
    return GPT(vocabulary=8192, width=768, layers=16)


class Trainer:
    def __init__(self):
        self.model = network().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)

    def load_optimizer(self, checkpoint):
        device = "cpu" if FIXED else "cuda"
        state = torch.load(os.path.join(checkpoint, "optimizer.pt"), map_location=device)
        # What load_state_dict did before PyTorch 2: a copy of all that it is given.
        self.optimizer.load_state_dict(copy.deepcopy(state))
        return state["param_groups"]

    def step(self):
        tokens = torch.randint(8192, (1, 128)).cuda()
        logits = self.model(tokens)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def saved_before(folder):
    """What an earlier run left: the weights, and AdamW's state of each."""
    model = network()
    torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for p in model.parameters():
        optimizer.state[p] = {
            "step": torch.tensor(1.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)
        }  # fmt: skip
    torch.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pt"))


with tempfile.TemporaryDirectory() as folder:
    saved_before(folder)
    trainer = Trainer()
    trainer.model.load_state_dict(
        torch.load(os.path.join(folder, "pytorch_model.bin"), map_location="cpu"), strict=True
    )
    trainer.load_optimizer(folder)
    for step in range(3):
        trainer.step()
        print(step)
