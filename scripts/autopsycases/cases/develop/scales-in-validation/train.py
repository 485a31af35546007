"""Trains a U-Net on crops of street scenes and validates it at several scales."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
CLASSES = 19
SCALES = (0.5, 1.0) if FIXED else (0.5, 1.0, 2.0)


def nscale_forward(model, images):
    """Averages the predictions of an image at several scales."""
    size = images.shape[2:]
    pred = 0
    for scale in SCALES:
        x = F.interpolate(images, scale_factor=scale, mode="bilinear") if scale != 1.0 else images
        pred = pred + F.interpolate(model(x), size, mode="bilinear")
    return pred / len(SCALES)


def validate(model):
    model.eval()
    with torch.no_grad():
        for i in range(4):
            images = torch.rand(1, 3, 1024, 2048).cuda()
            with torch.autocast("cuda", dtype=torch.float16, enabled=FIXED):
                pred = nscale_forward(model, images)
            print("validated", i, pred.argmax(dim=1).cpu().shape)
    model.train()


model = UNet(classes=CLASSES, width=32).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(2):
    for step in range(8):
        images = torch.rand(2, 3, 512, 512).cuda()
        labels = torch.randint(CLASSES, (2, 512, 512)).cuda()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    validate(model)
