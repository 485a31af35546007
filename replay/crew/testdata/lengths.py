"""Train on sequences of many lengths, padded to the longest of their batch, and print what was learnt to the
last bit. Longer ones come late: from the step on that is the third part of the argument, or else once the
file named by LATE exists. Before that, no two batches in a row have the same longest sequence. In the
scenario "alike", all of them have. Training ends earlier once the file named by STOP exists.

usage: lengths.py NAME@STEPS[@LATE]

What is printed is called by the argument that trains the same again.
"""

import hashlib
import os
import sys
import time

import torch

torch.set_num_threads(1)
ALIKE = sys.argv[1].startswith("alike")
LONG = 46


def batch(step, late):
    g = torch.Generator().manual_seed(step)
    lengths = torch.randint(16, 40, (16,), generator=g).tolist()
    if step % 2 == 0 or ALIKE:
        lengths[0] = 40
    if late and step % 4 == 0:
        lengths[step % 16] = LONG
    rows = [torch.randint(0, 50, (n,), generator=g) for n in lengths]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 64)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(4)
        )
        self.head = torch.nn.Linear(64, 50)

    def forward(self, x):
        y = self.embed(x)
        for layer in self.layers:
            y = layer(y)
        return torch.nn.functional.cross_entropy(self.head(y).flatten(0, 1), x.flatten())


def main():
    name, steps, *late = sys.argv[1].split("@")
    late = int(late[0]) if late else None
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    step = 0
    while step < int(steps) and not os.path.exists(os.environ.get("STOP", "")):
        while os.path.exists(os.environ.get("HOLD", "")):
            time.sleep(0.01)
        time.sleep(float(os.environ.get("PACE", "0")))  # the pace of a step
        if late is None and os.path.exists(os.environ.get("LATE", "")):
            late = step
        optimizer.zero_grad()
        loss = net(batch(step, late is not None and step >= late))
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        step += 1
    digest = hashlib.sha256()
    for p in net.parameters():
        digest.update(p.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    label = "%s@%d" % (name, step) + ("@%d" % late if late is not None else "")
    print("losses", label, *[x.hex() for x in losses])
    print("digest", label, digest.hexdigest(), flush=True)


main()
