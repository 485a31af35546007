"""Serves speech in many voices."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
VOICES = [f"voice-{i:02d}" for i in range(24)]


class SynthesizerTrn(nn.Module):
    def __init__(self, phonemes=112, width=768, layers=8):
        super().__init__()
        self.phonemes = nn.Embedding(phonemes, width)
        self.blocks = nn.ModuleList(Block(width, 12, causal=False) for _ in range(layers))
        self.before = nn.Conv1d(width, 512, 7, padding=3)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(512 >> i, 256 >> i, 2 * s, s, s // 2) for i, s in enumerate((8, 8, 2, 2))
        )
        self.after = nn.Conv1d(32, 1, 7, padding=3)

    def forward(self, ids):
        x = self.phonemes(ids)
        for block in self.blocks:
            x = block(x)
        x = self.before(x.repeat_interleave(4, dim=1).transpose(1, 2))
        for layer in self.up:
            x = layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.after(F.leaky_relu(x, 0.1)))


class TTSModel:
    def __init__(self, name):
        self.name, self.net_g = name, None

    def load(self):
        with torch.device("cuda"):
            self.net_g = SynthesizerTrn()
        self.net_g.eval()

    @torch.no_grad()
    def infer(self, text):
        if self.net_g is None:
            self.load()
        return self.net_g(torch.randint(112, (1, len(text)), device="cuda")).cpu()


loaded_models = []
for name in VOICES:
    model = TTSModel(name)
    if not FIXED:
        model.load()
    loaded_models.append(model)
for request in range(4):
    print(loaded_models[request % 2].infer("a sentence that somebody wants to hear").shape)
