"""Runs a detector at several resolutions, each with a CUDA graph of its own."""

import sys

import torch
from nets import ResNet

FIXED = "--fixed" in sys.argv

net = ResNet(classes=91).cuda().eval().requires_grad_(False)
pool = torch.cuda.graph_pool_handle() if FIXED else None
graphs = {}


def runner_of(size):
    if size not in graphs:
        static = torch.rand(8, 3, size, size).cuda()
        with torch.no_grad():
            net(static)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                x = net.stem(static)
                kept = []
                for stage in net.stages:
                    x = stage(x)
                    kept.append(x)
                out = net.classifier(x.mean(dim=(2, 3)))
        graphs[size] = (graph, static, out)
    return graphs[size]


for size in (384, 448, 512, 576, 640, 704, 768, 832):
    for batch in range(2):
        graph, static, out = runner_of(size)
        static.copy_(torch.rand(8, 3, size, size))
        graph.replay()
    print(size)
