"""Trains a 3-D U-Net with deep supervision on patches of volumes, in single precision."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", "--fixed", action="store_true", dest="fp16")
args = parser.parse_args()


class ConvDropoutNormNonlin(nn.Sequential):
    def __init__(self, channels, to, stride=1):
        super().__init__(
            nn.Conv3d(channels, to, 3, stride, 1),
            nn.InstanceNorm3d(to, affine=True),
            nn.LeakyReLU(1e-2, True),
        )


class StackedConvLayers(nn.Sequential):
    def __init__(self, channels, to, stride=1):
        super().__init__(ConvDropoutNormNonlin(channels, to, stride), ConvDropoutNormNonlin(to, to))


class GenericUNet(nn.Module):
    def __init__(self, channels=1, classes=3, base=32, pools=5, most=320):
        super().__init__()
        widths = [min(base << i, most) for i in range(pools + 1)]
        self.down = nn.ModuleList(
            StackedConvLayers(a, b, 2 if i else 1)
            for i, (a, b) in enumerate(zip([channels, *widths], widths))
        )
        self.tu, self.up, self.seg_outputs = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for low, high in zip(reversed(widths[1:]), reversed(widths[:-1])):
            self.tu.append(nn.ConvTranspose3d(low, high, 2, 2, bias=False))
            self.up.append(StackedConvLayers(2 * high, high))
            self.seg_outputs.append(nn.Conv3d(high, classes, 1, bias=False))

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
        skips.pop()
        outputs = []
        for tu, up, seg in zip(self.tu, self.up, self.seg_outputs):
            x = up(torch.cat((tu(x), skips.pop()), dim=1))
            outputs.append(seg(x))
        return outputs[::-1][:4]


def dice_and_cross_entropy(output, target):
    classes = output.shape[1]
    one_hot = F.one_hot(target, classes).permute(0, 4, 1, 2, 3)
    probabilities = output.softmax(dim=1)
    overlap = (probabilities * one_hot).sum(dim=(2, 3, 4))
    size = probabilities.sum(dim=(2, 3, 4)) + one_hot.sum(dim=(2, 3, 4))
    return F.cross_entropy(output, target) - (2 * overlap / (size + 1e-5)).mean()


class NetworkTrainer:
    def __init__(self, fp16):
        self.fp16 = fp16
        self.network = GenericUNet().cuda()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-2, momentum=0.99, nesterov=True)
        self.scaler = torch.amp.GradScaler("cuda") if fp16 else None

    def run_iteration(self, data, target):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", enabled=self.fp16):
            output = self.network(data)
            loss = 0
            for i, o in enumerate(output):
                small = target[:, :: 2**i, :: 2**i, :: 2**i]
                loss = loss + dice_and_cross_entropy(o, small) / 2**i
        if self.fp16:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), 12)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 12)
            self.optimizer.step()
        return loss.detach().cpu().numpy()

    def run_training(self, iterations):
        for _ in range(iterations):
            data = torch.rand(2, 1, 128, 128, 128).cuda()
            self.run_iteration(data, torch.randint(3, (2, 128, 128, 128)).cuda())


NetworkTrainer(args.fp16).run_training(3)
