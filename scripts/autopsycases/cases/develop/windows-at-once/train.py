"""Adapts a segmentation transformer to another city and validates it on sliding windows."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES, CROP, STRIDE, PATCH = 19, 512, 256, 8


class Segmenter(nn.Module):
    def __init__(self, width=384, layers=6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.positions = nn.Parameter(torch.zeros(1, (CROP // PATCH) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, 6, causal=False) for _ in range(layers)))
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, images):
        x = self.patches(images)
        shape = x.shape
        x = self.blocks(x.flatten(2).transpose(1, 2) + self.positions)
        x = self.head(x.transpose(1, 2).reshape(shape))
        return F.interpolate(x, scale_factor=PATCH, mode="bilinear")


def slide_inference(model, image, batched_slide):
    height, width = image.shape[2:]
    corners = [
        (y, x) for y in range(0, height - CROP + 1, STRIDE) for x in range(0, width - CROP + 1, STRIDE)
    ]
    preds = image.new_zeros(image.shape[0], CLASSES, height, width)
    crops = [image[:, :, y : y + CROP, x : x + CROP] for y, x in corners]
    if batched_slide:
        crop_seg_logits = model(torch.cat(crops)).split(image.shape[0])
    else:
        crop_seg_logits = (model(crop) for crop in crops)
    for (y, x), logits in zip(corners, crop_seg_logits):
        preds[:, :, y : y + CROP, x : x + CROP] += logits
    return preds.argmax(dim=1)


model = Segmenter().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5)
for iteration in range(8):
    images = torch.rand(2, 3, CROP, CROP).cuda()
    labels = torch.randint(CLASSES, (2, CROP, CROP)).cuda()
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    for i in range(3):
        image = torch.rand(1, 3, 1536, 3072).cuda()
        print(slide_inference(model, image, batched_slide=not FIXED).shape)
