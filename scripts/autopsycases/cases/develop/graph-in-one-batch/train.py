"""Classifies the nodes of a large graph with graph attention."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, EDGES, FEATURES, CLASSES = 153_364, 1_200_000, 67, 12


class GATConv(nn.Module):
    def __init__(self, features, channels, heads, concat=True):
        super().__init__()
        self.heads, self.channels, self.concat = heads, channels, concat
        self.lin = nn.Linear(features, heads * channels, bias=False)
        self.att_src, self.att_dst = (nn.Parameter(torch.rand(1, heads, channels)) for _ in range(2))

    def forward(self, x, edge_index):
        x = self.lin(x).view(-1, self.heads, self.channels)
        src, dst = edge_index
        alpha_src, alpha_dst = (x * self.att_src).sum(-1), (x * self.att_dst).sum(-1)
        alpha = F.leaky_relu(alpha_src[src] + alpha_dst[dst], 0.2).exp()
        total = torch.zeros_like(alpha_dst).index_add(0, dst, alpha)
        out = torch.zeros_like(x).index_add(0, dst, self.message(x.index_select(0, src), alpha / total[dst]))
        return out.flatten(1) if self.concat else out.mean(dim=1)

    def message(self, x_j, alpha):
        return x_j * alpha.unsqueeze(-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.lin1 = GATConv(FEATURES, 128, heads=4), nn.Linear(FEATURES, 512)
        self.conv2, self.lin2 = GATConv(512, 128, heads=4), nn.Linear(512, 512)
        self.conv3, self.lin3 = GATConv(512, CLASSES, heads=6, concat=False), nn.Linear(512, CLASSES)

    def forward(self, x, edge_index):
        x = F.elu(self.conv1(x, edge_index) + self.lin1(x))
        x = F.elu(self.conv2(x, edge_index) + self.lin2(x))
        return self.conv3(x, edge_index) + self.lin3(x)


class Data:
    def __init__(self, x, edge_index, y):
        self.x, self.edge_index, self.y = x, edge_index, y

    def to(self, device):
        return Data(self.x.to(device), self.edge_index.to(device), self.y.to(device))


def neighbour_sampler(data, parts=60):
    """Yields the graph of the neighbours of a part of the nodes at a time."""
    nodes, edges = NODES // parts * 3, EDGES // parts * 2
    for _ in range(parts):
        at = torch.randint(NODES, (nodes,))
        yield Data(data.x[at], torch.randint(nodes, (2, edges)), data.y[at])


labels = torch.randint(2, (NODES, CLASSES)).float()
data = Data(torch.rand(NODES, FEATURES), torch.randint(NODES, (2, EDGES)), labels)
loader = neighbour_sampler(data) if FIXED else [data]
model = Net().to("cuda")
loss_op = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for batch in loader:
    optimizer.zero_grad()
    batch = batch.to("cuda")
    loss = loss_op(model(batch.x, batch.edge_index), batch.y)
    loss.backward()
    optimizer.step()
    print(loss.item())
