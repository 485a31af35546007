"""Trains a generator of images of defects; its metrics compare samples with each other."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


class Generator(nn.Module):
    def __init__(self, widths=(512, 512, 512, 512, 256, 128, 64)):
        super().__init__()
        layers = [nn.Sequential(nn.Linear(512, 512), nn.LeakyReLU(0.2)) for _ in range(8)]
        self.mapping = nn.Sequential(*layers)
        self.const = nn.Parameter(torch.rand(1, 512, 4, 4))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip((512, *widths), widths))
        self.styles = nn.ModuleList(nn.Linear(512, a) for a in (512, *widths[:-1]))
        self.to_rgb = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, z):
        w, x = self.mapping(z), self.const.expand(len(z), -1, -1, -1)
        for i, (conv, style) in enumerate(zip(self.convs, self.styles)):
            x = F.interpolate(x, scale_factor=2) if i else x
            x = F.leaky_relu(conv(x * style(w)[:, :, None, None]), 0.2)
        return self.to_rgb(x)


class Discriminator(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512, 512, 512, 512)):
        super().__init__()
        self.from_rgb = nn.Conv2d(3, widths[0], 1)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in zip(widths, widths[1:]))
        self.out = nn.Linear(512 * 16, 1)

    def forward(self, x):
        x = self.from_rgb(x)
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.2)
        return self.out(x.flatten(1))


class LPIPS(nn.Module):
    def __init__(self):
        super().__init__()
        self.slices, channels = nn.ModuleList(), 3
        for i, (width, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
            layers = [nn.MaxPool2d(2)] if i else []
            for _ in range(depth):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            self.slices.append(nn.Sequential(*layers))

    def features(self, x):
        found = []
        for part in self.slices:
            x = part(x)
            found.append(F.normalize(x, dim=1))
        return found

    def forward(self, a, b):
        return sum((x - y).pow(2).sum(1).mean((1, 2)) for x, y in zip(self.features(a), self.features(b)))


@torch.no_grad()
def compute_clpips(G, lpips, num_gen=400, cluster_size=50, batch_size=10):
    noise = (torch.randn(batch_size, 512, device="cuda") for _ in range(num_gen // batch_size))
    images = torch.cat([G(z).cpu() for z in noise])
    distances = []
    for cluster in images.split(cluster_size):
        cluster = cluster.cuda()
        pairs = [(i, j) for i in range(len(cluster)) for j in range(i)][:96]
        for some in torch.tensor(pairs).cuda().split(8 if FIXED else len(pairs)):
            distances.append(lpips(cluster[some[:, 0]], cluster[some[:, 1]]))
    return torch.cat(distances).mean().item()


G, D = Generator().cuda(), Discriminator().cuda()
G_ema = copy.deepcopy(G).eval().requires_grad_(False)
G_opt, D_opt = torch.optim.Adam(G.parameters(), lr=2e-3), torch.optim.Adam(D.parameters(), lr=2e-3)
lpips = LPIPS().eval().requires_grad_(False).cuda()
for tick in range(2):
    for _ in range(4):
        z, real = torch.randn(8, 512, device="cuda"), torch.rand(8, 3, 256, 256).cuda()
        loss = F.softplus(-D(G(z))).mean()
        G_opt.zero_grad()
        loss.backward()
        G_opt.step()
        loss = (F.softplus(D(G(z).detach())) + F.softplus(-D(real))).mean()
        D_opt.zero_grad()
        loss.backward()
        D_opt.step()
        for average, p in zip(G_ema.parameters(), G.parameters()):
            average.copy_(p.detach().lerp(average, 0.999))
    print(tick, loss.item(), compute_clpips(G_ema, lpips))
