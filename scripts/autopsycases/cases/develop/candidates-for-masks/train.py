"""Suggests words for the gaps of a sentence with a masked language model, by beam search."""

import sys

import torch
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WORDS, GAPS, BEAM, CHUNK = 30522, 64, 3, 4000, 64


class MaskedModel(Encoder):
    def __init__(self):
        super().__init__(VOCABULARY, context=WORDS)
        self.decoder = nn.Linear(768, VOCABULARY)

    def forward(self, tokens):
        return self.decoder(self.features(tokens))


def scores(model, to_pred, gap):
    """Returns the logits of a gap for each candidate."""
    if not FIXED:
        return model(to_pred)[:, gap]
    return torch.cat([model(part)[:, gap].clone() for part in to_pred.split(CHUNK)])


def unmask(model, sentence):
    candidates = [sentence]
    for gap in range(GAPS):
        to_pred = torch.tensor(candidates).cuda()
        with torch.no_grad():
            best = scores(model, to_pred, gap).topk(max(BEAM // len(candidates), 1), dim=-1).indices
        best = best.cpu().clamp(0, VOCABULARY - 1).tolist()
        new = []
        for c, words in zip(candidates, best):
            for word in words:
                new.append(c[:gap] + [word] + c[gap + 1 :])
        candidates = new[:BEAM]
        print("gap", gap, len(candidates), "candidates")
    return candidates


model = MaskedModel().cuda().eval()
for _ in range(2):
    unmask(model, torch.randint(VOCABULARY, (WORDS,)).tolist())
