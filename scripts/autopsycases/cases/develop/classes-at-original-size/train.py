"""Trains a segmentation network on crops and validates it on whole images at their original size."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES = 150


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet()
        self.head = nn.Sequential(
            nn.Conv2d(2048, 256, 3, padding=1, bias=False),
            nn.BatchNorm2d(256),
            nn.ReLU(),
            nn.Conv2d(256, CLASSES, 1),
        )

    def encode_decode(self, images):
        b = self.backbone
        seg_logit = self.head(b.stages(F.max_pool2d(b.stem(images), 3, 2, 1)))
        return F.interpolate(seg_logit, images.shape[2:], mode="bilinear")

    def whole_inference(self, images, ori_shape):
        seg_logit = self.encode_decode(images)
        if not FIXED:
            seg_logit = F.interpolate(seg_logit, ori_shape, mode="bilinear")
        return seg_logit

    def simple_test(self, images, ori_shape):
        seg_pred = F.softmax(self.whole_inference(images, ori_shape), dim=1).argmax(dim=1)
        if FIXED:
            seg_pred = F.interpolate(seg_pred[:, None].to(torch.uint8), ori_shape, mode="nearest")
        return seg_pred.cpu()


model = EncoderDecoder().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(6):
    images = torch.rand(4, 3, 512, 512).cuda()
    labels = torch.randint(CLASSES, (4, 512, 512)).cuda()
    loss = F.cross_entropy(model.encode_decode(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    for height, width in ((1200, 1600), (1500, 2000), (3000, 4000)):
        image = torch.rand(1, 3, 512, 683).cuda()
        print(model.simple_test(image, (height, width)).shape)
