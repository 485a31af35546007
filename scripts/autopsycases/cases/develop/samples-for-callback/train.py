"""Trains a segmentation network; a callback logs some predictions at the end of each epoch."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
CLASSES = 21


class SegmentationModule:
    def __init__(self):
        self.network = UNet(channels=3, classes=CLASSES, width=32, levels=4).cuda()
        self.samples = None

    def configure_optimizers(self):
        return torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)

    def training_step(self, inputs, labels):
        outputs = self.network(inputs)
        loss = F.cross_entropy(outputs, labels)
        predictions = outputs.detach().softmax(dim=1)
        if FIXED:
            self.samples = (inputs[:2], predictions[:2], labels[:2])
            return {"loss": loss}
        return {"loss": loss, "inputs": inputs, "preds": predictions, "labels": labels}


class LogPredictions:
    def on_epoch_end(self, module, outputs):
        inputs, predictions, _ = module.samples or [outputs[-1][k] for k in ("inputs", "preds", "labels")]
        print(inputs.shape, predictions.argmax(dim=1).shape)


class Trainer:
    def fit(self, module, callback, epochs=2, batches=70):
        optimizer = module.configure_optimizers()
        for _ in range(epochs):
            epoch_outputs = []
            for _ in range(batches):
                inputs = torch.rand(8, 3, 256, 256).cuda()
                labels = torch.randint(CLASSES, (8, 256, 256)).cuda()
                output = module.training_step(inputs, labels)
                optimizer.zero_grad()
                output["loss"].backward()
                optimizer.step()
                output["loss"] = output["loss"].detach()
                epoch_outputs.append(output)
            callback.on_epoch_end(module, epoch_outputs)


Trainer().fit(SegmentationModule(), LogPredictions())
