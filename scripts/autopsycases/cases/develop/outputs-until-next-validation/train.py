"""Trains a segmentation network with a trainer that validates within the epoch."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class LitSegmentation(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = UNet(channels=3, classes=12, width=32)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return {"loss": F.cross_entropy(self(x), y)}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        y_hat = self(x)
        return {"val_loss": F.cross_entropy(y_hat, y), "y_hat": y_hat, "y": y}

    def validation_epoch_end(self, outputs):
        return torch.stack([x["val_loss"] for x in outputs]).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class EvaluationLoop:
    def __init__(self, model):
        self.model, self.outputs = model, []

    def on_evaluation_epoch_start(self):
        self.outputs = []

    def evaluation_step(self, batch, batch_idx):
        return self.model.validation_step(batch, batch_idx)

    def evaluation_epoch_end(self):
        if FIXED:
            outputs, self.outputs = self.outputs, []
            return self.model.validation_epoch_end(outputs)
        return self.model.validation_epoch_end(self.outputs)


class Trainer:
    def __init__(self, max_epochs, val_check_interval):
        self.max_epochs, self.val_check_interval = max_epochs, val_check_interval

    def fit(self, model, train_dataloader, val_dataloader):
        self.model = model.cuda()
        self.evaluation_loop = EvaluationLoop(model)
        optimizer = model.configure_optimizers()
        for epoch in range(self.max_epochs):
            self.run_training_epoch(optimizer, train_dataloader(), val_dataloader)

    def run_training_epoch(self, optimizer, loader, val_dataloader):
        self.model.train()
        for batch_idx, batch in enumerate(loader):
            batch = [x.cuda() for x in batch]
            loss = self.model.training_step(batch, batch_idx)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (batch_idx + 1) % self.val_check_interval == 0:
                print(batch_idx, self.run_evaluation(val_dataloader()).item())

    @torch.no_grad()
    def run_evaluation(self, loader):
        self.model.eval()
        self.evaluation_loop.on_evaluation_epoch_start()
        for batch_idx, batch in enumerate(loader):
            batch = [x.cuda() for x in batch]
            output = self.evaluation_loop.evaluation_step(batch, batch_idx)
            self.evaluation_loop.outputs.append(output)
        metrics = self.evaluation_loop.evaluation_epoch_end()
        self.model.train()
        return metrics


def dataloader(batches, size):
    for _ in range(batches):
        yield torch.rand(size, 3, 320, 320), torch.randint(12, (size, 320, 320))


trainer = Trainer(max_epochs=2, val_check_interval=4)
trainer.fit(LitSegmentation(), lambda: dataloader(8, 8), lambda: dataloader(24, 8))
