"""Turns spectrograms of read texts into sound with a flow."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv


class WN(nn.Module):
    """Dilated convolutions with gates, conditioned on the spectrogram."""

    def __init__(self, n_in_channels, n_mel_channels, n_layers=8, n_channels=256):
        super().__init__()
        self.n_layers, self.n_channels = n_layers, n_channels
        self.start = nn.Conv1d(n_in_channels, n_channels, 1)
        self.end = nn.Conv1d(n_channels, 2 * n_in_channels, 1)
        self.cond_layer = nn.Conv1d(n_mel_channels, 2 * n_channels * n_layers, 1)
        self.in_layers, self.res_skip_layers = nn.ModuleList(), nn.ModuleList()
        for i in range(n_layers):
            self.in_layers.append(nn.Conv1d(n_channels, 2 * n_channels, 3, dilation=2**i, padding=2**i))
            self.res_skip_layers.append(nn.Conv1d(n_channels, 2 * n_channels, 1))

    def forward(self, audio, spect):
        audio = self.start(audio)
        output = torch.zeros_like(audio)
        spect = self.cond_layer(spect)
        for i in range(self.n_layers):
            at = i * 2 * self.n_channels
            acts = self.in_layers[i](audio) + spect[:, at : at + 2 * self.n_channels]
            t, s = acts.chunk(2, dim=1)
            res_skip = self.res_skip_layers[i](t.tanh() * s.sigmoid())
            audio = audio + res_skip[:, : self.n_channels]
            output = output + res_skip[:, self.n_channels :]
        return self.end(output)


class WaveGlow(nn.Module):
    def __init__(self, n_mel_channels=80, n_flows=12, n_group=8):
        super().__init__()
        self.n_group = n_group
        self.upsample = nn.ConvTranspose1d(n_mel_channels, n_mel_channels, 1024, 256)
        self.convinv = nn.ModuleList(nn.Conv1d(n_group, n_group, 1, bias=False) for _ in range(n_flows))
        self.WN = nn.ModuleList(WN(n_group // 2, n_mel_channels * n_group) for _ in range(n_flows))

    def infer(self, spect, sigma=1.0):
        spect = self.upsample(spect)[:, :, : -(1024 - 256)]
        spect = spect.unfold(2, self.n_group, self.n_group).permute(0, 2, 1, 3)
        spect = spect.contiguous().view(spect.size(0), spect.size(1), -1).permute(0, 2, 1)
        audio = sigma * torch.randn(spect.size(0), self.n_group, spect.size(2), device=spect.device)
        for wn, convinv in zip(reversed(self.WN), reversed(self.convinv)):
            audio_0, audio_1 = audio.chunk(2, dim=1)
            b, s = wn(audio_0, spect).chunk(2, dim=1)
            audio = convinv(torch.cat([audio_0, (audio_1 - b) / s.exp()], dim=1))
        return audio.permute(0, 2, 1).contiguous().view(audio.size(0), -1)


def synthesize(waveglow, mel):
    if not FIXED:
        return waveglow.infer(mel).cpu()
    chunks = [waveglow.infer(chunk).cpu() for chunk in mel.split(800, dim=2)]
    return torch.cat(chunks, dim=1)


waveglow = WaveGlow().cuda().eval()
with torch.no_grad():
    for sentence, frames in enumerate((420, 610, 350, 5_200)):
        mel_outputs_postnet = torch.rand(1, 80, frames).cuda()
        print(sentence, synthesize(waveglow, mel_outputs_postnet).shape)
