"""Laws of CUDA graphs."""

import torch
from torch.nn import functional as F


from laws import differ, law, same


@law
def graphs_compute_at_replay():
    """A captured step computes at each replay, from what its inputs contain then, and not during capture."""
    x, y = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y.copy_(x * 2 + 1)
    torch.cuda.current_stream().wait_stream(side)
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.add_(x * 2 + 1)
    same(y, torch.zeros(8))
    for i in range(1, 4):
        x.fill_(i)
        graph.replay()
    same(y, torch.full((8,), 3.0 + 5 + 7))


@law
def graphs_draw_anew_at_each_replay():
    """Dropout in a graph draws anew at each replay, and the same again once the generator is reset."""
    x, y = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(F.dropout(x))
        z = F.dropout(x)
    torch.cuda.manual_seed(5)
    graph.replay()
    a, first = y.cpu(), z.cpu()
    graph.replay()
    b = y.cpu()
    torch.cuda.manual_seed(5)
    graph.replay()
    same(y, a)
    differ(a, b)
    differ(a, first)
