"""Classifies the nodes of a citation graph with attention over neighbours."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
NODES, WORDS, CLASSES = 3327, 3703, 6


class GraphAttentionLayer(nn.Module):
    def __init__(self, inputs, outputs, concat=True):
        super().__init__()
        self.outputs, self.concat = outputs, concat
        self.W = nn.Parameter(torch.randn(inputs, outputs) * 0.05)
        self.a = nn.Parameter(torch.randn(2 * outputs, 1) * 0.05)

    def forward(self, h, adj):
        Wh = torch.mm(F.dropout(h, 0.6, self.training), self.W)
        attention = torch.where(adj > 0, self.scores(Wh), -9e15)
        attention = F.dropout(F.softmax(attention, dim=1), 0.6, self.training)
        out = torch.matmul(attention, Wh)
        return F.elu(out) if self.concat else out

    def scores(self, Wh):
        if FIXED:
            own, other = Wh @ self.a[: self.outputs], Wh @ self.a[self.outputs :]
            return F.leaky_relu(own + other.T, 0.2)
        n = len(Wh)
        repeated = Wh.repeat_interleave(n, dim=0)
        alternating = Wh.repeat(n, 1)
        pairs = torch.cat([repeated, alternating], dim=1).view(n, n, 2 * self.outputs)
        return F.leaky_relu(torch.matmul(pairs, self.a).squeeze(2), 0.2)


class GAT(nn.Module):
    def __init__(self, hidden=8, heads=8):
        super().__init__()
        self.attentions = nn.ModuleList(GraphAttentionLayer(WORDS, hidden) for _ in range(heads))
        self.out = GraphAttentionLayer(hidden * heads, CLASSES, concat=False)

    def forward(self, x, adj):
        x = torch.cat([attention(x, adj) for attention in self.attentions], dim=1)
        return F.log_softmax(F.elu(self.out(x, adj)), dim=1)


features = torch.rand(NODES, WORDS).cuda()
adj = (torch.rand(NODES, NODES) < 0.001).float().cuda()
labels = torch.randint(CLASSES, (NODES,)).cuda()
model = GAT().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
for epoch in range(3):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(features, adj)[:140], labels[:140])
    loss.backward()
    optimizer.step()
    print(epoch)
