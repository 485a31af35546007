"""Trains a U-Net to mask cars in photos."""

import sys

import torch
import torch.nn.functional as F
from nets import UNet

FIXED = "--fixed" in sys.argv
SCALE = 0.25 if FIXED else 0.5


class Photos(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        height, width = (int(side * SCALE) // 16 * 16 for side in (1280, 1918))
        return torch.rand(3, height, width), torch.rand(1, height, width).round()


def train_net(net, epochs, batch_size=1):
    loader = torch.utils.data.DataLoader(Photos(), batch_size=batch_size, shuffle=True)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
    for epoch in range(epochs):
        net.train()
        for images, masks in loader:
            images, masks = images.cuda(), masks.cuda()
            predicted = net(images)
            loss = F.binary_cross_entropy_with_logits(predicted, masks)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
            optimizer.step()
        print(epoch, loss.item())


train_net(UNet(channels=3, classes=1).cuda(), 1)
