"""Says who speaks when: segments a recording, and embeds the speakers of its chunks in batches."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
RATE = 16000


class Segmentation(nn.Module):
    def __init__(self, speakers=4):
        super().__init__()
        self.filters = nn.Conv1d(1, 80, 251, stride=10)
        self.conv = nn.Conv1d(80, 60, 5)
        self.recurrent = nn.LSTM(60, 128, 2, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(256, speakers)

    def forward(self, waveforms):
        x = F.max_pool1d(self.filters(waveforms).abs(), 3)
        x = F.max_pool1d(F.leaky_relu(self.conv(x)), 9)
        return self.classifier(self.recurrent(x.transpose(1, 2))[0]).sigmoid()


class SpeakerEmbedding(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.filters = nn.Conv1d(1, 80, 251, stride=10)
        self.frames = nn.ModuleList(
            nn.Conv1d(a, width, k, dilation=d, padding=d * (k // 2))
            for a, k, d in ((80, 5, 1), (width, 3, 2), (width, 3, 3), (width, 1, 1))
        )
        self.out = nn.Linear(2 * width, 512)

    def forward(self, waveforms, weights):
        x = F.max_pool1d(self.filters(waveforms).abs(), 3)
        for frame in self.frames:
            x = F.leaky_relu(frame(x))
        weights = F.interpolate(weights[:, None], size=x.shape[2], mode="nearest")
        mean = (x * weights).sum(dim=2) / weights.sum(dim=2).clamp(min=1e-8)
        spread = (x - mean[..., None]).square().mul(weights).mean(dim=2).sqrt()
        return self.out(torch.cat([mean, spread], dim=1))


class SpeakerDiarization:
    def __init__(self, embedding_batch_size=32):
        self.segmentation = Segmentation().cuda().eval()
        self.embedding = SpeakerEmbedding().cuda().eval()
        self.embedding_batch_size = embedding_batch_size

    @torch.inference_mode()
    def __call__(self, waveform):
        chunks = waveform.unfold(0, 10 * RATE, RATE // 2)[:, None]
        segments = torch.cat([self.segmentation(part.cuda()).cpu() for part in chunks.split(16)])
        pairs = [(c, s) for c in range(len(chunks)) for s in range(segments.shape[2])]
        embeddings = []
        for i in range(0, len(pairs), self.embedding_batch_size):
            batch = pairs[i : i + self.embedding_batch_size]
            waveforms = torch.stack([chunks[c] for c, _ in batch]).cuda()
            masks = torch.stack([segments[c, :, s] for c, s in batch]).cuda()
            embeddings.append(self.embedding(waveforms, masks).cpu())
        return torch.cat(embeddings)


pipeline = SpeakerDiarization()
if FIXED:
    pipeline.embedding_batch_size = 14
print(pipeline(torch.zeros(30 * RATE)).shape)
