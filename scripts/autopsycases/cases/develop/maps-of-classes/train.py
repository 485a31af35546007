"""Explains a classifier on many images: which regions speak for a class (Grad-CAM)."""

import sys

import torch
from nets import ResNet

FIXED = "--fixed" in sys.argv


class ActivationsAndGradients:
    def __init__(self, model, target_layer):
        self.model, self.activations, self.gradients = model, [], []
        target_layer.register_forward_hook(self.save_activation)
        target_layer.register_full_backward_hook(self.save_gradient)

    def save_activation(self, module, args, output):
        self.activations.append(output.detach().cpu() if FIXED else output)

    def save_gradient(self, module, grad_input, grad_output):
        self.gradients.append(grad_output[0].cpu() if FIXED else grad_output[0])

    def __call__(self, x):
        return self.model(x)


class GradCAM:
    def __init__(self, model, target_layer):
        self.model = model.eval()
        self.seen = ActivationsAndGradients(self.model, target_layer)

    def __call__(self, images):
        output = self.seen(images)
        self.model.zero_grad()
        output.max(dim=1).values.sum().backward()
        weights = self.seen.gradients[-1].mean(dim=(2, 3), keepdim=True)
        return (weights * self.seen.activations[-1]).sum(dim=1).relu().detach().cpu()


model = ResNet().cuda()
cam = GradCAM(model, model.stages[-1])
maps = [cam(torch.rand(16, 3, 384, 384).cuda()) for _ in range(60)]
print(len(maps))
