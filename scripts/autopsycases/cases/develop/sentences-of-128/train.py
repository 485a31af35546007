"""Fine-tunes BERT for sentence embeddings with the hardest triplets of each batch."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder

FIXED = "--fixed" in sys.argv
MAX_SEQ_LENGTH, BATCH = 48 if FIXED else 128, 96


def batch_hard(vectors, labels, margin=5.0):
    distances = torch.cdist(vectors, vectors)
    same = labels[:, None] == labels[None]
    positive = (distances * same).amax(dim=1)
    negative = (distances + 1e4 * same).amin(dim=1)
    return F.relu(positive - negative + margin).mean()


def fit(model, batches, optimizer):
    for step in range(batches):
        tokens = torch.randint(30522, (BATCH, MAX_SEQ_LENGTH)).cuda()
        labels = torch.randint(12, (BATCH,)).cuda()
        vectors = model.features(tokens).mean(dim=1)
        loss = batch_hard(vectors, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


model = Encoder(math=True, dropout=0.1).cuda().train()
fit(model, 5, torch.optim.AdamW(model.parameters(), lr=2e-5))
