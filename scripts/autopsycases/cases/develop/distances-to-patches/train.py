"""Finds anomalies in images: collects features of patches, and compares those of new images with them."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
TRAIN, TEST, SIZE, RATIO = 64, 4, 224, 0.05


def distance_matrix(x, y):
    if FIXED:
        return torch.cdist(x, y)
    n, m, d = len(x), len(y), x.shape[1]
    x = x.unsqueeze(1).expand(n, m, d)
    y = y.unsqueeze(0).expand(n, m, d)
    return torch.pow(x - y, 2).sum(2) ** 0.5


class KNN:
    def __init__(self, points, k):
        self.points, self.k = points, k

    def __call__(self, x):
        return distance_matrix(x, self.points).topk(self.k, largest=False)


class PatchCore:
    def __init__(self):
        self.model = ResNet().cuda().eval()
        self.features = []
        for stage in (self.model.stages[6], self.model.stages[12]):
            stage.register_forward_hook(lambda module, args, output: self.features.append(output))

    @torch.no_grad()
    def embedding(self, images):
        self.features = []
        self.model(images)
        low, high = (F.avg_pool2d(f, 3, 1, 1) for f in self.features)
        high = F.interpolate(high, size=low.shape[-2:])
        return torch.cat([low, high], dim=1).permute(0, 2, 3, 1).flatten(0, 2)

    def fit(self):
        x = torch.cat([self.embedding(torch.rand(8, 3, SIZE, SIZE).cuda()).cpu() for _ in range(TRAIN // 8)])
        self.bank = x[torch.randperm(len(x))[: int(len(x) * RATIO)]].cuda()

    def test(self):
        knn = KNN(self.bank, 9)
        for i in range(TEST):
            scores, _ = knn(self.embedding(torch.rand(1, 3, SIZE, SIZE).cuda()))
            print(i, scores[:, 0].max().item())


core = PatchCore()
core.fit()
core.test()
