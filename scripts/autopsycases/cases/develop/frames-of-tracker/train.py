"""Follows objects through a video that is loaded as a whole before the first frame is looked at."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class Tracker(nn.Module):
    """An image encoder, attention to the last frames' memories, and a head for masks."""

    def __init__(self, width=256):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.encoder = nn.Sequential(*(Block(width, 8, causal=False) for _ in range(4)))
        self.memory = nn.MultiheadAttention(width, 8, batch_first=True)
        self.head = nn.ConvTranspose2d(width, 1, 4, 4)

    def forward(self, image, memories):
        x = self.patches(image)
        size = x.shape[-2:]
        x = self.encoder(x.flatten(2).transpose(1, 2))
        if memories:
            past = torch.cat(memories, dim=1)
            x = x + self.memory(x, past, past, need_weights=False)[0]
        return self.head(x.transpose(1, 2).unflatten(2, size)), x


class VideoPredictor:
    """Keeps what is known of a video while masks are handed on from frame to frame."""

    def __init__(self, model, remembered=6):
        self.model, self.remembered = model, remembered

    def init_state(self, path, offload_video_to_cpu=False):
        images = load_video_frames(path)
        if not offload_video_to_cpu:
            images = images.cuda()
        return {"images": images, "memories": [], "masks": {}}

    @torch.inference_mode()
    def propagate_in_video(self, state):
        for i in range(len(state["images"])):
            image = state["images"][i].cuda().float().unsqueeze(0)
            masks, memory = self.model(image, state["memories"][-self.remembered:])
            state["memories"].append(memory)
            del state["memories"][: -self.remembered]
            state["masks"][i] = F.interpolate(masks, scale_factor=4).cpu() > 0
            yield i, state["masks"][i]


def load_video_frames(path, frames=180, size=1024):
    """Returns the video's frames, resized: [frames, 3, size, size]."""
    images = torch.zeros(frames, 3, size, size)
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    images -= mean
    return images


predictor = VideoPredictor(Tracker().cuda().eval())
state = predictor.init_state("street.mp4", offload_video_to_cpu=FIXED)
for i, mask in predictor.propagate_in_video(state):
    print(i, mask.shape)
    if i == 12:
        break
