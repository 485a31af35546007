"""Trains a spiking network without gradients: rules of its own change the weights."""

import sys
from contextlib import nullcontext

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class Nodes(nn.Module):
    """Neurons that integrate what they get, fire above a threshold and rest after that."""

    def __init__(self, shape, threshold=13.0, rest=5):
        super().__init__()
        self.threshold, self.rest = threshold, rest
        self.register_buffer("v", torch.zeros(shape))
        self.register_buffer("refrac_count", torch.zeros(shape))

    def forward(self, x):
        with torch.no_grad() if FIXED else nullcontext():
            self.v = self.v * 0.99
            self.v = self.v + (self.refrac_count <= 0).float() * x
        spikes = self.v >= self.threshold
        self.refrac_count = (self.refrac_count - 1).masked_fill(spikes, self.rest)
        self.v = self.v.masked_fill(spikes, 0.0)
        return spikes.float()


class Network(nn.Module):
    def __init__(self, batch=64, inputs=784, neurons=6400):
        super().__init__()
        self.connection = nn.Linear(inputs, neurons, bias=False)
        self.nodes = Nodes((batch, neurons))
        self.traces = torch.zeros(batch, neurons, device="cuda")

    def run(self, image, time=50):
        counts = torch.zeros_like(self.traces)
        for _ in range(time):
            spikes = self.nodes(self.connection((torch.rand_like(image) < image).float()))
            self.traces = 0.95 * self.traces + spikes
            counts += spikes
        with torch.no_grad():
            self.connection.weight += 1e-5 * self.traces.t() @ image
        return counts


network = Network().cuda()
for step in range(12):
    counts = network.run(torch.rand(64, 784).cuda())
    print(step, counts.sum().item())
