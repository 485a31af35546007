"""Synthesizes sentences with the voice of a reference recording."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
RATE, HOP, MELS = 24_000, 300, 80
SECONDS = [12, 15, 20 if FIXED else 4200]  # the third reference is a whole lecture


class StyleEncoder(nn.Module):
    """Convolutions over the spectrogram of the reference, a GRU, and style tokens."""

    def __init__(self, channels=(32, 32, 64, 64, 128, 128), width=256):
        super().__init__()
        layers, last = [], 1
        for i, c in enumerate(channels):
            layers += [nn.Conv2d(last, c, 3, 1 + (i > 1), 1, bias=False), nn.BatchNorm2d(c), nn.ReLU()]
            last = c
        self.convs = nn.Sequential(*layers)
        self.gru = nn.GRU(last * MELS // 16, width, batch_first=True)
        self.tokens = nn.Parameter(torch.randn(10, width))

    def forward(self, speech):
        x = self.convs(speech[:, None]).transpose(1, 2).flatten(2)
        _, h = self.gru(x)
        return F.softmax(h[-1] @ self.tokens.T, dim=-1) @ self.tokens


class TTS(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.style = StyleEncoder(width=width)
        self.text = nn.Embedding(80, width)
        self.encoder = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(4)))
        self.decoder = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(4)))
        self.out = nn.Linear(width, MELS)

    def inference(self, text, speech):
        x = self.encoder(self.text(text)) + self.style(speech)[:, None]
        return self.out(self.decoder(x.repeat_interleave(8, dim=1)))


class Text2Speech:
    def __init__(self):
        self.tts = TTS().cuda().eval()

    @torch.no_grad()
    def __call__(self, text, speech):
        return self.tts.inference(text.cuda(), speech.cuda())


text2speech = Text2Speech()
for i, seconds in enumerate(SECONDS):
    mel = torch.zeros(1, seconds * RATE // HOP, MELS)
    wav = text2speech(torch.randint(80, (1, 60 + 5 * i)), mel)
    print(i, tuple(wav.shape))
