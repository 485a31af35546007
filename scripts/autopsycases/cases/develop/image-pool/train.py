"""Trains pix2pix; the critic sees fakes of earlier steps out of a pool of fifty."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import UNet, twice
from torch import nn

FIXED = "--fixed" in sys.argv

generator = UNet(classes=3, width=32).cuda()
critic = nn.Sequential(
    twice(6, 64), nn.MaxPool2d(2), twice(64, 128), nn.MaxPool2d(2), twice(128, 256), nn.Conv2d(256, 1, 1)
).cuda()
optimizers = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (generator, critic)]
draw = random.Random(3)


class ImagePool:
    """The latest fakes: each query puts some in and gets as many."""

    def __init__(self, size=50):
        self.size, self.images = size, []

    def query(self, images):
        out = []
        for image in images.split(1):
            if len(self.images) < self.size:
                self.images.append(image)
                out.append(image)
            elif draw.random() > 0.5:
                k = draw.randrange(self.size)
                out.append(self.images[k])
                self.images[k] = image
            else:
                out.append(image)
        return torch.cat(out)


pool = ImagePool()
for step in range(60):
    sketch, photo = (torch.rand(2, 3, 256, 256).cuda() for _ in range(2))
    fake = generator(sketch)
    shown = pool.query(fake.detach() if FIXED else fake)
    no, yes = critic(torch.cat([sketch, shown], dim=1)), critic(torch.cat([sketch, photo], dim=1))
    loss = F.softplus(no).mean() + F.softplus(-yes).mean()
    optimizers[1].zero_grad()
    loss.backward(inputs=list(critic.parameters()))
    optimizers[1].step()

    fake = generator(sketch)
    loss = F.softplus(-critic(torch.cat([sketch, fake], dim=1))).mean() + 100 * F.l1_loss(fake, photo)
    optimizers[0].zero_grad()
    loss.backward()
    optimizers[0].step()
