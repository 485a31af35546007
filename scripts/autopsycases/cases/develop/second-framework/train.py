"""Trains on vectors that a model of another framework makes, in the same process.

The other framework takes most of the GPU's memory when its session begins, as TensorFlow does.
"""

import ctypes
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
BATCH, TIME, WIDTH = 64, 400, 1024


class Session:
    """What a session of the other framework does to the memory of the GPU."""

    def __init__(self, fraction):
        driver = ctypes.CDLL("libcuda.so.1")
        free, _ = torch.cuda.mem_get_info()
        self.pool = ctypes.c_uint64()
        status = driver.cuMemAlloc_v2(ctypes.byref(self.pool), ctypes.c_size_t(int(free * fraction)))
        if status:
            raise SystemExit(f"cuMemAlloc said {status}")

    def run(self):
        return torch.rand(BATCH, TIME, WIDTH)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(2 * WIDTH, 50)

    def forward(self, vectors):
        return self.tags(self.lstm(vectors)[0])


model = Tagger().cuda()
session = Session(0.25 if FIXED else 0.92)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    vectors, tags = session.run().cuda(), torch.randint(50, (BATCH, TIME)).cuda()
    loss = F.cross_entropy(model(vectors).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
