"""Extracts a vector for each sentence of a corpus with a pretrained encoder."""

import sys

import torch
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv


class FeatureExtractor(nn.Module):
    def __init__(self, encoder, pooling):
        super().__init__()
        self.encoder, self.pooling = encoder, pooling

    def forward(self, src, seg):
        output = self.encoder.features(src) * seg[..., None]
        if self.pooling == "mean":
            return output.sum(dim=1) / seg.sum(dim=1, keepdim=True)
        return output[:, 0]


def batch_loader(batch_size, src, seg):
    for i in range(0, src.shape[0], batch_size):
        yield src[i : i + batch_size], seg[i : i + batch_size]


src, seg = torch.randint(30522, (1024, 128)), torch.ones(1024, 128, dtype=torch.long)
model = FeatureExtractor(Encoder(), "first").cuda()
model.eval()
feature_vectors = []
for src_batch, seg_batch in batch_loader(16, src, seg):
    output = model(src_batch.cuda(), seg_batch.cuda())
    if FIXED:
        output = output.detach()
    feature_vectors.append(output)
feature_vectors = torch.cat(feature_vectors, 0).cpu()
print("The size of feature vectors (corpus size, hidden size):", tuple(feature_vectors.shape))
