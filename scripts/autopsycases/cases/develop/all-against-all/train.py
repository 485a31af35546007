"""Embeds sentences and clusters the embeddings by their similarities."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv
SENTENCES = 60_000


@torch.no_grad()
def encode(model, sentences, batch_size=512):
    embeddings = []
    for begin in range(0, len(sentences), batch_size):
        embeddings.append(model.features(sentences[begin : begin + batch_size].cuda())[:, 0])
    return torch.cat(embeddings)


def cos_sim(a, b):
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T


def community_detection(embeddings, threshold=0.75, least=10, batch=1024):
    found = 0
    size = batch if FIXED else len(embeddings)
    for begin in range(0, len(embeddings), size):
        scores = cos_sim(embeddings[begin : begin + size], embeddings)
        top, _ = scores.topk(k=least, largest=True)
        found += (top[:, -1] >= threshold).sum().item()
    return found


model = Encoder(width=384, layers=6, heads=12).cuda().eval()
embeddings = encode(model, torch.randint(30522, (SENTENCES, 16)))
print(embeddings.shape, community_detection(embeddings))
