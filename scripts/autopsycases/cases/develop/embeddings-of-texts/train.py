"""Encodes many texts, token by token, and hands all embeddings out as arrays."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv


class SentenceEncoder:
    def __init__(self):
        self.model = Encoder(layers=6, width=512, heads=8).cuda().eval()

    def encode(self, texts, batch_size=64):
        texts = sorted(texts, key=len, reverse=True)
        all_embeddings = []
        for start in range(0, len(texts), batch_size):
            batch = texts[start : start + batch_size]
            longest = max(len(t) for t in batch)
            tokens = torch.zeros(len(batch), longest, dtype=torch.long)
            for i, t in enumerate(batch):
                tokens[i, : len(t)] = t
            with torch.no_grad():
                out = self.model.features(tokens.cuda())
            if FIXED:
                out = out.cpu()
            for row, t in zip(out, batch):
                all_embeddings.append(row[: len(t)])
        return [e.cpu().numpy() for e in all_embeddings]


encoder = SentenceEncoder()
texts = [torch.randint(30522, (40 + 7 * (i % 50),)) for i in range(6000)]
embeddings = encoder.encode(texts)
print(len(embeddings))
