"""Trains a Wasserstein GAN: several updates of the critic for each of the generator."""

import contextlib
import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
NZ, NDF, NGF = 100, 64, 128


class DCGAN_D(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        main, channels = [nn.Conv2d(3, NDF, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)], NDF
        while size > 8:
            main += [nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * channels),
                     nn.LeakyReLU(0.2, inplace=True)]
            channels, size = 2 * channels, size // 2
        self.main = nn.Sequential(*main, nn.Conv2d(channels, 1, 4, 1, 0, bias=False))

    def forward(self, input):
        return self.main(input).mean(0).view(1)


class DCGAN_G(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        channels = NGF * size // 8
        main = [nn.ConvTranspose2d(NZ, channels, 4, 1, 0, bias=False), nn.BatchNorm2d(channels)]
        main.append(nn.ReLU(True))
        for _ in range((size // 8).bit_length() - 1):
            main += [nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1, bias=False),
                     nn.BatchNorm2d(channels // 2), nn.ReLU(True)]
            channels //= 2
        self.main = nn.Sequential(*main, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, input):
        return self.main(input)


def train(netD, netG, iterations, batch, critic_iters=5):
    optimizerD = torch.optim.RMSprop(netD.parameters(), lr=5e-5)
    optimizerG = torch.optim.RMSprop(netG.parameters(), lr=5e-5)
    for gen_iteration in range(iterations):
        for p in netD.parameters():
            p.requires_grad = True
        for _ in range(critic_iters):
            for p in netD.parameters():
                p.data.clamp_(-0.01, 0.01)
            netD.zero_grad()
            errD_real = netD(torch.rand(batch, 3, 128, 128).cuda())
            with torch.no_grad() if FIXED else contextlib.nullcontext():
                fake = netG(torch.randn(batch, NZ, 1, 1).cuda())
            errD = errD_real - netD(fake)
            errD.backward()
            optimizerD.step()
        for p in netD.parameters():
            p.requires_grad = False
        netG.zero_grad()
        errG = netD(netG(torch.randn(batch, NZ, 1, 1).cuda()))
        errG.backward()
        optimizerG.step()
        print(gen_iteration, errD.item(), errG.item())


train(DCGAN_D().cuda(), DCGAN_G().cuda(), iterations=2, batch=128)
