"""Trains a network that removes streaks from reconstructions of a scanner, and validates after each epoch."""

import sys

import torch
from nets import UNet
from torch import nn

FIXED = "--fixed" in sys.argv


class FBPConvNet(nn.Module):
    """Filtered back projection, here a resampling of the sinogram, and a U-Net that corrects it."""

    def __init__(self):
        super().__init__()
        self.block = UNet(channels=1, classes=1, width=64)

    def forward(self, sinogram):
        image = nn.functional.interpolate(sinogram, size=(512, 512), mode="bilinear")
        return image + self.block(image)


def dataset(batches, batch_size):
    for _ in range(batches):
        yield torch.rand(batch_size, 1, 360, 900), torch.rand(batch_size, 1, 512, 512)


model = FBPConvNet().cuda()
loss_fcn = nn.MSELoss()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
min_valid_loss = float("inf")
for epoch in range(2):
    train_loss = 0.0
    model.train()
    for sinogram, target_reconstruction in dataset(6, 4):
        optimiser.zero_grad()
        reconstruction = model(sinogram.cuda())
        loss = loss_fcn(reconstruction, target_reconstruction.cuda())
        loss.backward()
        train_loss += loss.item()
        optimiser.step()

    valid_loss = 0.0
    model.eval()
    with torch.set_grad_enabled(not FIXED):
        for sinogram, target_reconstruction in dataset(4, 4):
            reconstruction = model(sinogram.cuda())
            loss = loss_fcn(target_reconstruction.cuda(), reconstruction)
            valid_loss += loss.item()
    print(f"Epoch {epoch + 1} \t\t Training Loss: {train_loss / 6} \t\t Validation Loss: {valid_loss / 4}")
    min_valid_loss = min(min_valid_loss, valid_loss)
