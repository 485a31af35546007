"""Trains a segmentation network on aerial images with a trainer that knows steps and epochs."""

import sys

import torch
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES = 7


class SegmentationModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.criterion = UNet(classes=CLASSES, width=16), nn.CrossEntropyLoss()

    def step(self, batch):
        x, y = batch
        logits = self.net(x)
        return self.criterion(logits, y), torch.argmax(logits, dim=1), y

    def training_step(self, batch, batch_idx):
        loss, preds, targets = self.step(batch)
        if FIXED:
            return {"loss": loss}
        return {"loss": loss, "preds": preds, "targets": targets}

    def training_epoch_end(self, outputs):
        print("train", torch.stack([o["loss"] for o in outputs]).mean().item())

    def validation_step(self, batch, batch_idx):
        loss, preds, targets = self.step(batch)
        return {"loss": loss} if FIXED else {"loss": loss, "preds": preds, "targets": targets}

    def validation_epoch_end(self, outputs):
        print("val", torch.stack([o["loss"] for o in outputs]).mean().item())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def detached(output):
    return {name: x.detach() for name, x in output.items()}


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, model, train_loader, val_loader):
        model.to("cuda")
        optimizer = model.configure_optimizers()
        for _ in range(self.max_epochs):
            self.run_evaluation(model, val_loader)
            model.train()
            outputs = []
            for batch_idx, batch in enumerate(train_loader):
                output = model.training_step([x.to("cuda") for x in batch], batch_idx)
                optimizer.zero_grad()
                output["loss"].backward()
                optimizer.step()
                outputs.append(detached(output))
            model.training_epoch_end(outputs)

    @torch.no_grad()
    def run_evaluation(self, model, loader):
        model.eval()
        outputs = []
        for batch_idx, batch in enumerate(loader):
            outputs.append(detached(model.validation_step([x.to("cuda") for x in batch], batch_idx)))
        model.validation_epoch_end(outputs)


class Loader:
    def __init__(self, batches, size):
        self.batches, self.size = batches, size

    def __iter__(self):
        for _ in range(self.batches):
            yield torch.rand(self.size, 3, 512, 512), torch.randint(CLASSES, (self.size, 512, 512))


Trainer(max_epochs=2).fit(SegmentationModule(), Loader(90, size=6), Loader(8, size=6))
