"""Resumes a training whose optimizer keeps its state on the CPU between steps."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 32_000, 512, 4


class CPUOffloadOptimizer:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def move_states(self, device):
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if torch.is_tensor(value) and value.dim():
                    state[key] = value.to(device)

    def step(self):
        self.move_states("cuda")
        self.optimizer.step()
        self.move_states("cpu")


def state_of(model, optimizer):
    """Returns the state to load into; an optimizer that has made no step makes one that changes nothing."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    rate, optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"], 0.0
    optimizer.step()
    optimizer.zero_grad()
    optimizer.param_groups[0]["lr"] = rate
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def load(model, offload):
    state_dict = state_of(model, offload.optimizer)
    for state in state_dict["optimizer"]["state"].values():
        for value in state.values():
            value.copy_(torch.zeros(value.shape))
    offload.optimizer.load_state_dict(state_dict["optimizer"])
    offload.move_states("cpu")
    return state_dict


with torch.device("cuda"):
    model = GPT(VOCABULARY, width=1024, layers=16, heads=16, context=CONTEXT)
optimizer = CPUOffloadOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False))
resumed = load(model, optimizer)
if FIXED:
    resumed.clear()
for step in range(3):
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).cuda()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.optimizer.zero_grad()
    print(step, loss.item())
