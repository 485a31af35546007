"""Tests a network for videos on several clips and crops of each video."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class ResBlock(nn.Module):
    def __init__(self, dim_in, dim_inner, dim_out, stride):
        super().__init__()
        self.a = nn.Conv3d(dim_in, dim_inner, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.a_bn = nn.BatchNorm3d(dim_inner)
        self.b = nn.Conv3d(dim_inner, dim_inner, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        self.b_bn = nn.BatchNorm3d(dim_inner)
        self.c = nn.Conv3d(dim_inner, dim_out, 1, bias=False)
        self.c_bn = nn.BatchNorm3d(dim_out)
        self.branch1 = nn.Identity()
        if dim_in != dim_out:
            self.branch1 = nn.Conv3d(dim_in, dim_out, 1, (1, stride, stride), bias=False)

    def forward(self, x):
        y = F.relu(self.a_bn(self.a(x)))
        y = F.relu(self.b_bn(self.b(y)))
        return F.relu(self.branch1(x) + self.c_bn(self.c(y)))


class SlowNet(nn.Module):
    def __init__(self, num_classes=400):
        super().__init__()
        self.stem = nn.Conv3d(3, 64, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False)
        self.stem_bn = nn.BatchNorm3d(64)
        blocks, dim = [], 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            for i in range(depth):
                blocks.append(ResBlock(dim, 64 << stage, 256 << stage, 2 if stage and not i else 1))
                dim = 256 << stage
        self.blocks = nn.Sequential(*blocks)
        self.projection = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.stem_bn(self.stem(x))), (1, 3, 3), (1, 2, 2), (0, 1, 1))
        x = self.projection(self.blocks(x).mean(dim=(2, 3, 4)))
        return x if self.training else F.softmax(x, dim=-1)


class TestMeter:
    """Sums the predictions of all views of a video, on the host."""

    def __init__(self, num_videos, num_clips, num_cls):
        self.num_clips = num_clips
        self.video_preds = torch.zeros(num_videos, num_cls)

    def update_stats(self, preds, clip_ids):
        for pred, clip in zip(preds, clip_ids):
            self.video_preds[int(clip) // self.num_clips] += pred


def test_loader(num_videos, views, batch_size):
    clips = torch.arange(num_videos * views)
    for ids in clips.split(batch_size):
        yield torch.rand(len(ids), 3, 8, 256, 256), ids


def perform_test(loader, model, test_meter):
    model.eval()
    with torch.no_grad() if FIXED else contextlib.nullcontext():
        for inputs, video_idx in loader:
            preds = model(inputs.cuda(non_blocking=True))
            test_meter.update_stats(preds.detach().cpu(), video_idx)


model = SlowNet().cuda()
meter = TestMeter(num_videos=4, num_clips=30, num_cls=400)
perform_test(test_loader(4, 30, batch_size=8), model, meter)
print(meter.video_preds.argmax(dim=1))
