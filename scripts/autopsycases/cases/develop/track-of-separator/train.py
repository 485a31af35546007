"""Separates a long recording into its instruments, segment by segment, with a bag of networks."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
SAMPLERATE = 44_100


class Demucs(nn.Module):
    """A U-Net over waveforms."""

    def __init__(self, sources=4, audio_channels=2, channels=64, depth=6, kernel_size=8, stride=4):
        super().__init__()
        self.sources, self.audio_channels, self.stride, self.depth = sources, audio_channels, stride, depth
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        in_channels, out_channels = audio_channels, sources * audio_channels
        for index in range(depth):
            self.encoder.append(nn.Sequential(
                nn.Conv1d(in_channels, channels, kernel_size, stride), nn.ReLU(),
                nn.Conv1d(channels, 2 * channels, 1), nn.GLU(dim=1),
            ))
            decode = [nn.Conv1d(channels, 2 * channels, 3, padding=1), nn.GLU(dim=1),
                      nn.ConvTranspose1d(channels, out_channels, kernel_size, stride)]
            self.decoder.insert(0, nn.Sequential(*decode, *([nn.ReLU()] if index else [])))
            in_channels, out_channels, channels = channels, channels, 2 * channels

    def forward(self, mix):
        x, saved = mix, []
        for encode in self.encoder:
            x = encode(x)
            saved.append(x)
        for decode in self.decoder:
            skip = saved.pop()
            x = decode(x + skip[..., : x.shape[-1]])
        x = F.pad(x, (0, mix.shape[-1] - x.shape[-1]))
        return x.view(len(mix), self.sources, self.audio_channels, -1)


class BagOfModels(nn.Module):
    def __init__(self, models, weights):
        super().__init__()
        self.models, self.weights = nn.ModuleList(models), weights


def apply_model(model, mix, device, split=True, overlap=0.25, segment=SAMPLERATE * 12):
    if isinstance(model, BagOfModels):
        estimates, totals = 0.0, [0.0] * 4
        for sub_model, weight in zip(model.models, model.weights):
            out = apply_model(sub_model, mix, device, split, overlap, segment)
            for k, inst_weight in enumerate(weight):
                out[:, k, :, :] *= inst_weight
                totals[k] += inst_weight
            estimates += out
            del out
        for k in range(estimates.shape[1]):
            estimates[:, k, :, :] /= totals[k]
        return estimates
    if split:
        batch, channels, length = mix.shape
        out = torch.zeros(batch, model.sources, channels, length, device=mix.device)
        sum_weight = torch.zeros(length, device=mix.device)
        weight = torch.cat([torch.arange(1, segment // 2 + 1),
                            torch.arange(segment - segment // 2, 0, -1)]).to(mix.device) / segment
        for offset in range(0, length, int((1 - overlap) * segment)):
            chunk = mix[..., offset : offset + segment]
            chunk_out = apply_model(model, chunk, device, split=False).to(mix.device)
            n = chunk.shape[-1]
            out[..., offset : offset + segment] += weight[:n] * chunk_out
            sum_weight[offset : offset + segment] += weight[:n]
        out /= sum_weight
        return out
    return model(mix.to(device))


def load_track(seconds, device):
    wav = torch.rand(2, seconds * SAMPLERATE).to(device)
    ref = wav.mean(0)
    return (wav - ref.mean()) / ref.std()


device = "cuda"
model = BagOfModels([Demucs(channels=48) for _ in range(4)], [[1.0, 1.0, 1.0, 1.0]] * 4).to(device).eval()
for track, seconds in (("single", 150), ("live set", 700)):
    wav = load_track(seconds, "cpu" if FIXED else device)
    with torch.no_grad():
        sources = apply_model(model, wav[None], device)[0]
    for name, source in zip(("drums", "bass", "other", "vocals"), sources):
        print(track, name, source.cpu().shape)
    del sources, source
