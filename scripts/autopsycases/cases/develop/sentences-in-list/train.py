"""Embeds a few thousand sentences in batches."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv
SENTENCES, BATCH, LENGTH = 6_000, 50, 128


def encode(model, docs):
    embeddings = model.features(docs.cuda())
    return embeddings[:, 0]


model = Encoder().cuda().eval()
sentences = torch.randint(30522, (SENTENCES, LENGTH))
embeddings = []
with torch.no_grad():
    for docs in sentences.split(BATCH):
        embeddings_batch = encode(model, docs)
        embeddings.append(embeddings_batch.cpu() if FIXED else embeddings_batch)
embeddings = torch.cat(embeddings)
print(embeddings.shape)
