"""Trains embeddings of a knowledge graph, and ranks all entities for each triple of the test."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
ENTITIES, RELATIONS = 184_635, 28


class RotatE(nn.Module):
    """Relations rotate the heads' complex embeddings."""

    def __init__(self, embedding_dim=200):
        super().__init__()
        self.entities = nn.Embedding(ENTITIES, 2 * embedding_dim)
        self.relations = nn.Embedding(RELATIONS, embedding_dim)

    @staticmethod
    def interaction(h, r, t):
        h_re, h_im = h.chunk(2, dim=-1)
        r_re, r_im = r.cos(), r.sin()
        rotated = torch.cat([h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re], dim=-1)
        diff = rotated - t
        return -diff.unflatten(-1, (2, -1)).norm(dim=-2).sum(dim=-1)

    def score_hrt(self, hrt):
        return self.interaction(self.entities(hrt[:, 0]), self.relations(hrt[:, 1]), self.entities(hrt[:, 2]))

    def score_t(self, hr):
        h, r = self.entities(hr[:, 0]).unsqueeze(1), self.relations(hr[:, 1]).unsqueeze(1)
        return self.interaction(h, r, self.entities.weight.unsqueeze(0))


def sampled(hrt):
    negative = hrt.clone()
    negative[:, 2] = torch.randint_like(negative[:, 2], ENTITIES)
    return negative


class SLCWATrainingLoop:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train(self, triples, num_epochs, batch_size):
        for epoch in range(num_epochs):
            for hrt in triples.split(batch_size):
                hrt = hrt.cuda()
                positive, negative = self.model.score_hrt(hrt), self.model.score_hrt(sampled(hrt))
                loss = F.margin_ranking_loss(positive, negative, torch.ones_like(positive), margin=1.0)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(epoch, loss.item())


class RankBasedEvaluator:
    def __init__(self):
        self.ranks = []

    def process_tail_scores(self, hrt, scores):
        true_scores = scores.gather(1, hrt[:, 2:])
        self.ranks.extend(((scores > true_scores).sum(dim=1) + 1).tolist())

    @torch.inference_mode()
    def evaluate(self, model, triples, batch_size):
        model.eval()
        for hrt in triples.split(batch_size):
            hrt = hrt.cuda()
            self.process_tail_scores(hrt, model.score_t(hrt[:, :2]))
        return 1 / torch.tensor(self.ranks).float().mean()


def triples(n):
    return torch.stack([torch.randint(ENTITIES, (n,)), torch.randint(RELATIONS, (n,)),
                        torch.randint(ENTITIES, (n,))], dim=1)


model = RotatE().cuda()
loop = SLCWATrainingLoop(model, torch.optim.Adam(model.parameters(), lr=0.01))
loop.train(triples(20_000), num_epochs=2, batch_size=4096)
print(RankBasedEvaluator().evaluate(model, triples(256), batch_size=4 if FIXED else 64))
