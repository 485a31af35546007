"""Computes what the first layers of a frozen encoder make of a corpus, to train the last layer on it."""

import sys

import torch
from nets import Encoder

FIXED = "--fixed" in sys.argv


@torch.no_grad()
def precompute(encoder, corpus, batch_size=32):
    hidden_states_list = []
    for ids in corpus.split(batch_size):
        hidden_states = encoder.features(ids.cuda())
        if FIXED:
            hidden_states = hidden_states.cpu()
        hidden_states_list.append(hidden_states)
    return torch.cat([h.cpu() for h in hidden_states_list])


encoder = Encoder(layers=5).cuda().eval()
embeddings = precompute(encoder, torch.randint(30522, (4000, 256)))
print(embeddings.shape)
