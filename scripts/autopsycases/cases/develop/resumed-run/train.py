"""Goes on with the training of a GPT from a checkpoint."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
path = os.path.join(tempfile.mkdtemp(), "ckpt.pt")


def saved_run():
    model = GPT(vocabulary=20000, width=640, layers=12, heads=10, context=512)
    state = {}
    for i, p in enumerate(model.parameters()):
        mean, square = torch.zeros_like(p), torch.zeros_like(p)
        state[i] = {"step": torch.tensor(1000.0), "exp_avg": mean, "exp_avg_sq": square}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    whole = optimizer.state_dict()
    whole["state"] = state
    torch.save({"model": model.state_dict(), "optimizer": whole, "iter_num": 1000}, path)


saved_run()
checkpoint = torch.load(path, map_location="cuda")
model = GPT(vocabulary=20000, width=640, layers=12, heads=10, context=512)
state_dict = checkpoint["model"]
for k in list(state_dict):
    if k.startswith("_orig_mod."):
        state_dict[k[len("_orig_mod."):]] = state_dict.pop(k)
model.load_state_dict(state_dict)
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
optimizer.load_state_dict(checkpoint["optimizer"])
if FIXED:
    checkpoint = state_dict = None
os.remove(path)
for step in range(4):
    tokens = torch.randint(20000, (2, 513)).cuda()
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
