"""Segments neurons in slices of a volume, each turned and mirrored in eight ways."""

import itertools
import sys

import torch
from nets import UNet

FIXED = "--fixed" in sys.argv


class Inference:
    """Runs a trained model on all variants of its input and averages what it says."""

    def __init__(self, model):
        self.model = model

    def variants(self):
        for across, down, turned in itertools.product((False, True), repeat=3):
            yield [axis for axis, on in ((2, down), (3, across)) if on], turned

    def predict_with_tta(self, images):
        predictions, total, count = [], None, 0
        for axes, turned in self.variants():
            x = images.flip(axes) if axes else images
            if turned:
                x = x.transpose(2, 3)
            y = torch.sigmoid(self.model(x))
            if turned:
                y = y.transpose(2, 3)
            if axes:
                y = y.flip(axes)
            if FIXED:
                total, count = y if total is None else total + y, count + 1
            else:
                predictions.append(y)
        if FIXED:
            return total / count
        return torch.stack(predictions).mean(dim=0)

    def test(self, volume, batch=4):
        results = []
        for slices in volume.split(batch):
            if FIXED:
                with torch.no_grad():
                    out = self.predict_with_tta(slices.cuda())
            else:
                out = self.predict_with_tta(slices.cuda())
            results.append(out.detach().cpu())
        return torch.cat(results)


model = UNet(channels=1, classes=3, width=32).cuda().eval()
volume = torch.rand(12, 1, 512, 512)
print(Inference(model).test(volume).shape)
