"""Segments instances in images: the network sees them small, and its masks get the original size."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
IMAGES = [(800, 1333), (1080, 1920), (2000, 2000), (4000, 6000)]
INSTANCES = 60


class MaskRCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet()
        self.neck = nn.Conv2d(2048, 256, 1)
        layers = [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()] * 4 + [nn.ConvTranspose2d(256, 256, 2, 2)]
        self.mask_head = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(256, 1, 1))

    def forward(self, image, height, width):
        x = self.neck(self.backbone.stages(F.max_pool2d(self.backbone.stem(image), 3, 2, 1)))
        rois = F.adaptive_avg_pool2d(x, 14).expand(INSTANCES, -1, -1, -1)
        masks = self.mask_head(rois).sigmoid()
        boxes = torch.rand(INSTANCES, 4, device=x.device) * torch.tensor([width, height] * 2).cuda()
        return masks, boxes


def do_paste_mask(masks, boxes, height, width):
    """Places masks of 28 by 28 in an image, each in its box."""
    x0, y0, x1, y1 = boxes.split(1, dim=1)
    img_y = torch.arange(height, device=masks.device, dtype=torch.float32) + 0.5
    img_x = torch.arange(width, device=masks.device, dtype=torch.float32) + 0.5
    img_y = (img_y - y0) / (y1 - y0) * 2 - 1
    img_x = (img_x - x0) / (x1 - x0) * 2 - 1
    gx = img_x[:, None, :].expand(len(masks), height, width)
    gy = img_y[:, :, None].expand(len(masks), height, width)
    grid = torch.stack([gx, gy], dim=3)
    return F.grid_sample(masks, grid, align_corners=False)[:, 0]


def get_seg_masks(masks, boxes, height, width):
    size = 4 if FIXED else len(masks)
    out = torch.zeros(len(masks), height, width, dtype=torch.bool, device=masks.device)
    for i in range(0, len(masks), size):
        part = slice(i, i + size)
        out[part] = do_paste_mask(masks[part], boxes[part], height, width) >= 0.5
    return out


model = MaskRCNN().cuda().eval()
with torch.no_grad():
    for height, width in IMAGES:
        image = F.interpolate(torch.rand(1, 3, height, width), size=(800, 1344)).cuda()
        masks, boxes = model(image, height, width)
        segmentation = get_seg_masks(masks, boxes, height, width)
        print(height, width, tuple(segmentation.shape))
        del segmentation
