"""Looks for a person in the photos of a gallery: one query, and every photo in turn."""

import argparse

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn


class SearchNet(nn.Module):
    """Proposes boxes in a photo and describes what is in them."""

    def __init__(self, boxes=128, width=256):
        super().__init__()
        self.boxes = boxes
        self.backbone = ResNet()
        self.rpn = nn.Sequential(nn.Conv2d(2048, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 9, 1))
        self.embed = nn.Linear(2048, width)

    def feature_maps(self, images):
        return self.backbone.stages(F.max_pool2d(self.backbone.stem(images), 3, 2, 1))

    def inference(self, images):
        maps = self.feature_maps(images)
        scores = self.rpn(maps).flatten(1)
        best = scores.topk(self.boxes).indices % (maps.shape[2] * maps.shape[3])
        rows = maps.flatten(2).transpose(1, 2)[0, best[0]]
        return [{"scores": scores[0, best[0]], "embeddings": F.normalize(self.embed(rows), dim=1)}]

    def forward(self, images):
        return self.inference(images)


def read(size):
    return torch.rand(1, 3, *size)


def main(args):
    model = SearchNet().cuda()
    model.eval()
    torch.set_grad_enabled(not args.fixed)
    query = model(read((600, 300)).cuda())[0]["embeddings"][:1]
    for name in args.gallery:
        photo = read((900, 1500)).cuda()
        found = model(photo)[0]
        similarity = found["embeddings"] @ query.t()
        print(name, similarity.shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--gallery", nargs="*", default=[f"gallery-{i}.jpg" for i in range(1, 5)])
    main(parser.parse_args())
