"""Speaks a text: one thread generates latents, and another turns them into sound."""

import queue
import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Layer(nn.Module):
    def __init__(self, width=1024, heads=16):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, state):
        b, t, w = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        if "keys" in state:
            k, v = (
                torch.cat([state["keys"], k], dim=2),
                torch.cat([state["values"], v], dim=2),
            )
        state["keys"], state["values"] = k, v
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class FlowLM(nn.Module):
    def __init__(self, width=1024, layers=6, latent=32):
        super().__init__()
        self.read, self.speak = nn.Embedding(4000, width), nn.Linear(latent, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.flow = nn.Sequential(nn.Linear(width, 512), nn.SiLU(), nn.Linear(512, latent))

    def forward(self, x, states):
        for layer, state in zip(self.layers, states):
            x = layer(x, state)
        return self.flow(x[:, -1:])


class Mimi(nn.Module):
    """Turns a latent into 1920 samples."""

    def __init__(self):
        super().__init__()
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(32, 512, 12, 12),
            nn.ELU(),
            nn.ConvTranspose1d(512, 256, 8, 8),
            nn.ELU(),
            nn.ConvTranspose1d(256, 128, 5, 5),
            nn.ELU(),
            nn.ConvTranspose1d(128, 1, 4, 4),
        )

    def forward(self, latent):
        return self.decoder(latent.transpose(1, 2))


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lm, self.mimi = FlowLM(), Mimi()

    def _autoregressive_generation(self, tokens, frames, latents):
        try:
            states = [{} for _ in self.lm.layers]
            latent = self.lm(self.lm.read(tokens), states)
            for _ in range(frames):
                latents.put(latent)
                latent = self.lm(self.lm.speak(latent), states)
            latents.put(None)
        except Exception as err:  # the other thread raises it
            latents.put(err)

    if FIXED:
        _autoregressive_generation = torch.no_grad()(_autoregressive_generation)

    @torch.no_grad()
    def generate_audio(self, tokens, frames):
        latents, sound = queue.Queue(), []
        arguments = (tokens, frames, latents)
        threading.Thread(target=self._autoregressive_generation, args=arguments, daemon=True).start()
        while (latent := latents.get()) is not None:
            if isinstance(latent, Exception):
                raise latent
            sound.append(self.mimi(latent).cpu())
        return torch.cat(sound, dim=-1)


model = SpeechModel().cuda().eval()
for sentence in (60, 110, 90):
    text = torch.randint(4000, (1, sentence)).cuda()
    model.generate_audio(text, frames=5 * sentence)
