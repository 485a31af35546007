"""Makes segmentation labels: class activations spread along the affinities of an image's pixels."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
SCALE = 0.5 if FIXED else 1.0


class EdgeDisplacement(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet(depths=(3, 4))
        self.edge = nn.Conv2d(self.backbone.channels, 1, 1)
        self.cam = nn.Conv2d(self.backbone.channels, 20, 1)

    def forward(self, image):
        x = self.backbone.stages(F.max_pool2d(self.backbone.stem(image), 3, 2, 1))
        return self.edge(x).sigmoid(), F.relu(self.cam(x))


def to_transition_matrix(edge, beta=10, steps=2):
    """A random walk between the pixels, which stops at edges."""
    strength = (1 - edge.flatten()).pow(beta)
    transition = strength[:, None] * strength[None]
    transition = transition / transition.sum(dim=0, keepdim=True)
    for _ in range(steps):
        transition = torch.matmul(transition, transition)
    return transition


def propagate_to_edge(cam, edge):
    shape = cam.shape
    spread = torch.matmul(cam.flatten(2)[0], to_transition_matrix(edge))
    return spread.view(shape)


@torch.no_grad()
def make_labels(model, sizes):
    for name, (height, width) in enumerate(sizes):
        image = torch.rand(1, 3, int(height * SCALE), int(width * SCALE)).cuda()
        edge, cam = model(image)
        labels = F.interpolate(propagate_to_edge(cam, edge), size=(height, width), mode="bilinear")
        print(name, labels.argmax(dim=1).cpu().shape)


make_labels(EdgeDisplacement().cuda().eval(), [(375, 500), (500, 333), (480, 640), (366, 500), (2000, 1500)])
