"""Draws Grad-CAM maps for a set of images, each batch with a wrapper of its own."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
BATCH, TOPK = 8, 3


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.fmap_pool, self.grad_pool = {}, {}

        def save_fmaps(module, inputs, output):
            self.fmap_pool[layer] = output.detach()

        def save_grads(module, grad_in, grad_out):
            self.grad_pool[layer] = grad_out[0].detach()

        module = dict(model.named_modules())[layer]
        self.handlers = [
            module.register_forward_hook(save_fmaps),
            module.register_full_backward_hook(save_grads),
        ]

    def forward(self, images):
        self.image_shape = images.shape[2:]
        self.logits = self.model(images)
        self.probs = F.softmax(self.logits, dim=1)
        return self.probs.sort(dim=1, descending=True)

    def backward(self, ids):
        one_hot = torch.zeros_like(self.logits).scatter_(1, ids, 1.0)
        self.model.zero_grad()
        self.logits.backward(gradient=one_hot, retain_graph=True)

    def generate(self, layer):
        fmaps, grads = self.fmap_pool[layer], self.grad_pool[layer]
        weights = F.adaptive_avg_pool2d(grads, 1)
        gcam = F.relu((fmaps * weights).sum(dim=1, keepdim=True))
        return F.interpolate(gcam, self.image_shape, mode="bilinear", align_corners=False)

    def remove_hook(self):
        for handle in self.handlers:
            handle.remove()


model = ResNet().cuda().eval()
for batch in range(12):
    images = torch.rand(BATCH, 3, 224, 224).cuda()
    gcam = GradCAM(model, "stages.15")
    probs, ids = gcam.forward(images)
    for i in range(TOPK):
        gcam.backward(ids[:, [i]])
        regions = gcam.generate("stages.15").cpu()
    if FIXED:
        gcam.remove_hook()
        del gcam.logits, gcam.probs, probs
    print(batch, regions.shape)
