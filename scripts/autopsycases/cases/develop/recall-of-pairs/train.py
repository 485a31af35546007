"""Trains CLIP and computes its recall on a validation set, each image against each caption."""

import sys

import torch
import torch.nn.functional as F
from nets import Encoder, ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
PAIRS, BATCH, WIDTH = 5_000 if FIXED else 26_000, 500, 512


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = ResNet(classes=WIDTH)
        self.text = Encoder(width=512, layers=8, heads=8, context=77, classes=WIDTH)
        self.logit_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, texts):
        images = F.normalize(self.visual(images), dim=-1)
        texts = F.normalize(self.text(texts), dim=-1)
        return images, texts, self.logit_scale.exp()


def batch_of(n):
    return torch.rand(n, 3, 64, 64).cuda(), torch.randint(30522, (n, 77)).cuda()


def train_one_epoch(model, optimizer, steps=4):
    model.train()
    for _ in range(steps):
        image_features, text_features, scale = model(*batch_of(64))
        logits = scale * image_features @ text_features.T
        labels = torch.arange(len(logits), device="cuda")
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


def get_metrics(image_features, text_features):
    metrics = {}
    logits_per_image = image_features @ text_features.t()
    logits_per_text = logits_per_image.t()
    ground_truth = torch.arange(len(text_features), device="cuda").view(-1, 1)
    for name, logits in {"image_to_text": logits_per_image, "text_to_image": logits_per_text}.items():
        ranking = torch.argsort(logits, descending=True)
        preds = (ranking == ground_truth).to(torch.uint8).argmax(dim=1)
        metrics[f"{name}_mean_rank"] = preds.float().mean().item() + 1
        for k in (1, 5, 10):
            metrics[f"{name}_R@{k}"] = (preds < k).float().mean().item()
    return metrics


@torch.no_grad()
def evaluate(model):
    model.eval()
    all_image_features, all_text_features = [], []
    for _ in range(0, PAIRS, BATCH):
        image_features, text_features, _ = model(*batch_of(BATCH))
        all_image_features.append(image_features)
        all_text_features.append(text_features)
    return get_metrics(torch.cat(all_image_features), torch.cat(all_text_features))


model = CLIP().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
for epoch in range(2):
    train_one_epoch(model, optimizer)
    print(evaluate(model))
