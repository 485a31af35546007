"""Computes the gradient of each sample's loss with vmap."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch.func import functional_call, grad, vmap

FIXED = "--fixed" in sys.argv

model = ResNet(depths=(3, 4, 23, 3), classes=10).cuda().eval()
weights = {name: p.detach() for name, p in model.named_parameters()}
buffers = dict(model.named_buffers())


def loss_of(weights, image, label):
    logits = functional_call(model, (weights, buffers), (image.unsqueeze(0),))
    return F.cross_entropy(logits, label.unsqueeze(0))


per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0), chunk_size=4 if FIXED else None)
norms = []
for batch in range(3):
    images, labels = torch.rand(48, 3, 224, 224).cuda(), torch.randint(10, (48,)).cuda()
    if FIXED:
        parts = zip(images.split(4), labels.split(4))
        norms += [
            torch.stack([g.flatten(1).norm(dim=1) for g in per_sample(weights, x, y).values()]).norm(dim=0)
            for x, y in parts
        ]
    else:
        gradients = per_sample(weights, images, labels)
        norms.append(torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0))
print(len(norms), "batches of norms")
