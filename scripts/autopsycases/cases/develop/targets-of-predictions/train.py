"""Trains a segmentation of streets, then collects the predictions for the validation set with its targets."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
SIZE, CLASSES, BATCH = 512, 12, 4


def to_detach(x):
    return x.detach().cpu() if FIXED else x.detach()


def loader_of(batches):
    for _ in range(batches):
        yield torch.rand(BATCH, 3, SIZE, SIZE).cuda(), torch.randint(CLASSES, (BATCH, SIZE, SIZE)).cuda()


def loss_batch(model, xb, yb, optimizer=None):
    out = model(xb)
    if optimizer is None:
        return out.argmax(dim=1).to(torch.uint8).cpu(), to_detach(yb)
    loss = F.cross_entropy(out, yb)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach().cpu()


def fit(model, optimizer, batches):
    model.train()
    for xb, yb in loader_of(batches):
        loss = loss_batch(model, xb, yb, optimizer)
    print(loss.item())


@torch.no_grad()
def get_preds(model, batches):
    model.eval()
    return [torch.cat(o).cpu() for o in zip(*(loss_batch(model, xb, yb) for xb, yb in loader_of(batches)))]


model = UNet(classes=CLASSES, width=16).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
fit(model, optimizer, 6)
preds, targets = get_preds(model, 320)
print((preds == targets).float().mean().item())
