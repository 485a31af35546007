"""Segments the images of a folder; each result has the masks at the size of its image."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv


class Results:
    def __init__(self, path, boxes, masks):
        self.path, self.boxes, self.masks = path, boxes, masks

    def save_txt(self):
        return f"{self.path} {len(self.boxes)} {self.masks.sum().item()}"


class SegmentationPredictor:
    def __init__(self, objects=24):
        self.model = UNet(channels=3, classes=32, width=32, levels=4).cuda().eval()
        self.objects = objects

    def preprocess(self, image):
        x = image.cuda().float()[None] / 255
        return F.interpolate(x, size=(640, 640), mode="bilinear")

    def postprocess(self, protos, path, shape):
        coefficients = torch.randn(self.objects, 32, device="cuda")
        boxes = torch.rand(self.objects, 6, device="cuda")
        masks = (coefficients @ protos[0].flatten(1)).view(-1, *protos.shape[2:])
        masks = F.interpolate(masks[None], size=shape, mode="bilinear")[0]
        return Results(path, boxes, masks.gt(0.0).float())

    @torch.inference_mode()
    def stream_inference(self, source):
        for path, image in source:
            protos = self.model(self.preprocess(image))
            yield self.postprocess(protos, path, image.shape[1:])

    def __call__(self, source, stream=False):
        results = self.stream_inference(source)
        return results if stream else list(results)


def folder(images):
    for i in range(images):
        yield f"{i:06d}.jpg", torch.zeros(3, 1080, 1920, dtype=torch.uint8)


predictor = SegmentationPredictor()
for result in predictor(folder(60), stream=FIXED):
    print(result.save_txt())
