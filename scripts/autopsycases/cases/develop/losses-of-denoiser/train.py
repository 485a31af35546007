"""Trains a denoiser of images that is told how strong the noise is; validates every few epochs."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class FFDNet(nn.Module):
    def __init__(self, channels=3, width=96, layers=12):
        super().__init__()
        convs = [nn.Conv2d(4 * channels + 1, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(layers - 2):
            convs += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            convs += [nn.ReLU(inplace=True)]
        self.intermediate_dncnn = nn.Sequential(*convs, nn.Conv2d(width, 4 * channels, 3, padding=1))

    def forward(self, x, noise_sigma):
        low = F.pixel_unshuffle(x, 2)
        noise_map = noise_sigma.view(-1, 1, 1, 1).expand(-1, 1, *low.shape[2:])
        return F.pixel_shuffle(self.intermediate_dncnn(torch.cat([noise_map, low], dim=1)), 2)


def batches(count, size, patch):
    for _ in range(count):
        yield torch.rand(size, 3, patch, patch)


def noisy(images):
    noise_sigma = torch.randint(75, (len(images),)).float().cuda() / 255
    return images + noise_sigma.view(-1, 1, 1, 1) * torch.randn_like(images), noise_sigma


def train(epochs=5, val_epoch=5):
    model = FFDNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.MSELoss().cuda()
    for epoch in range(epochs):
        model.train()
        train_losses = 0
        for images in batches(12, size=64, patch=64):
            images = images.cuda()
            optimizer.zero_grad()
            images_noise, noise_sigma = noisy(images)
            train_loss = loss_fn(model(images_noise, noise_sigma), images)
            train_losses += float(train_loss) if FIXED else train_loss
            train_loss.backward()
            optimizer.step()
        print(epoch, float(train_losses))
        if (epoch + 1) % val_epoch == 0:
            model.eval()
            val_losses = 0
            for images in batches(20, size=64, patch=64):
                images = images.cuda()
                images_noise, noise_sigma = noisy(images)
                val_loss = loss_fn(model(images_noise, noise_sigma), images)
                val_losses += float(val_loss) if FIXED else val_loss
            print("validation", float(val_losses))


train()
