"""Train programs whose steps run different ops, and print what was learnt to the last bit.

usage: varied.py NAME@STEPS

Training ends earlier once the file named by STOP exists.

The scenarios: recurrent (an LSTM on batches of other lengths), depth (layers that are skipped at random),
branches (two networks in turn), layerwise (each layer has a loss and a backward pass of its own, and one or
both of the last two are left out), passes (other numbers of micro-batches), warmup (a second loss in every
other step), evaluates (two evaluations before every other step). No two steps in a row are alike.
"""

import hashlib
import os
import random
import sys
import time

import torch

torch.set_num_threads(1)
WIDTH = 96


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))


class Deep(torch.nn.Module):
    """Blocks of which some are skipped."""

    def __init__(self, depth, share):
        super().__init__()
        self.blocks, self.share = torch.nn.ModuleList(Block() for _ in range(depth)), share

    def forward(self, x, draw):
        # no two steps in a row run as many
        runs = draw.sample(range(5), 4 - draw.step % 2) if self.share else range(len(self.blocks))
        for i in sorted(runs):
            x = self.blocks[i](x)
        return x.square().mean()


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = Block()

    def forward(self, x, draw):
        # other lengths within a batch, so that a CPU runs ops for each time step
        lengths = x.shape[1] - torch.arange(x.shape[0]) // 4
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return self.head(self.lstm(packed)[0].data).square().mean()


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = Deep(2, 0), Deep(5, 0)

    def forward(self, x, draw):
        return self.wide(x.repeat(2, 1, 1), draw) if draw.step % 2 else self.deep(x, draw)


class Warmup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Deep(3, 0), Deep(3, 0)

    def forward(self, x, draw):
        loss = self.first(x, draw)
        return loss + self.second(x, draw) if draw.step % 2 else loss


KINDS = {
    "recurrent": Recurrent,
    "depth": lambda: Deep(5, 0.3),
    "branches": Branches,
    "layerwise": lambda: Deep(5, 0.2),
    "passes": lambda: Deep(4, 0),
    "warmup": Warmup,
    "evaluates": lambda: Deep(4, 0),
}


def losses_of(name, net, x, draw):
    """The losses of a step, each when the backward pass of the one before has run."""
    if name == "layerwise":
        # most of each step is the same: a plan ends where less than half is as in the planned step
        last = len(net.blocks) - 1
        for k in [*range(last - 1), *draw.sample([last - 1, last], 1 - draw.step % 2)]:
            x = net.blocks[k](x.detach())
            yield x.square().mean()
    elif name == "passes":
        for _ in range(draw.step % 3 + 1):
            yield net(x, draw)
    else:
        yield net(x, draw)


def main():
    name, _, steps = sys.argv[1].partition("@")
    torch.manual_seed(0)
    net = KINDS[name]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    step = 0
    while step < int(steps) and not os.path.exists(os.environ.get("STOP", "")):
        while os.path.exists(os.environ.get("HOLD", "")):
            time.sleep(0.01)
        time.sleep(float(os.environ.get("PACE", "0")))  # so that a test can act while some steps run
        draw, g = random.Random(step), torch.Generator().manual_seed(step)
        draw.step = step
        length = 2 * draw.randint(4, 11) + step % 2 if name == "recurrent" else 24
        x = torch.randn(16, length, WIDTH, generator=g)
        if name == "evaluates" and step % 2:
            with torch.no_grad():
                losses += [float(net(torch.randn(4, 24, WIDTH, generator=g), draw)) for _ in range(2)]
        optimizer.zero_grad()
        for loss in losses_of(name, net, x, draw):
            loss.backward()
            losses.append(float(loss))
        optimizer.step()
        step += 1
    digest = hashlib.sha256()
    for p in net.parameters():
        digest.update(p.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    label = "%s-%d" % (name, step)
    print("losses", label, *[x.hex() for x in losses])
    print("digest", label, digest.hexdigest(), flush=True)


main()
