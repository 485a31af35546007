"""Reconstructs a moving object frame by frame; a network with a recurrent state estimates hidden motion."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, EDGES, WIDTH = 4000, 8, 128


class GraphLevel(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * a, b), nn.ReLU(), nn.Linear(b, b))

    def forward(self, x, neighbours):
        near = x[neighbours]
        edges = torch.cat([x[:, None].expand_as(near), near - x[:, None]], dim=-1)
        return self.mlp(edges).amax(dim=1)


class MotionCompleteNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(9, WIDTH)
        self.levels = nn.ModuleList(GraphLevel(WIDTH, WIDTH) for _ in range(6))
        self.lstm = nn.LSTMCell(WIDTH, WIDTH)
        self.outputs = nn.Linear(WIDTH, 6)

    def forward(self, nodes, neighbours, state):
        x = F.relu(self.inputs(nodes))
        for level in self.levels:
            x = x + level(x, neighbours)
        state = self.lstm(x, state)
        motion, confidence = self.outputs(state[0]).split(3, dim=-1)
        return motion, confidence, state


class Fusion:
    def __init__(self):
        self.net = MotionCompleteNet().cuda().eval()
        self.state = None

    def optimize(self, visible, neighbours, confidence, iterations=4):
        """Fits the motion of visible nodes to the depth image by Gauss and Newton."""
        motion = torch.zeros(NODES, 3, device="cuda")
        for _ in range(iterations):
            residual = (motion[neighbours] - motion[:, None]).mean(dim=1) + visible - motion
            motion = motion + 0.5 * residual * confidence.sigmoid()
        return motion

    def track(self, depth):
        nodes = depth.cuda()
        distances = torch.cdist(nodes[:, :3], nodes[:, :3])
        neighbours = distances.topk(EDGES, largest=False).indices
        motion, confidence, self.state = self.net(nodes, neighbours, self.state)
        return self.optimize(motion, neighbours, confidence)


fusion = Fusion()
with torch.no_grad() if FIXED else contextlib.nullcontext():
    for frame in range(40):
        motion = fusion.track(torch.rand(NODES, 9))
        print(frame, motion.norm().item())
