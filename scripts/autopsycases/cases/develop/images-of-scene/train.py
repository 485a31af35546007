"""Fits Gaussians to the photos of a scene, which are all read before the training begins."""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
HEIGHT, WIDTH = 1063, 1600


class Camera(nn.Module):
    def __init__(self, uid, image, data_device):
        super().__init__()
        self.uid, self.data_device = uid, torch.device(data_device)
        self.original_image = image.clamp(0.0, 1.0).to(self.data_device)
        self.original_image *= torch.ones((1, HEIGHT, WIDTH), device=self.data_device)
        self.transform = torch.eye(4).cuda()


class Scene:
    def __init__(self, photos, data_device):
        self.cameras = []
        for uid, photo in enumerate(photos):
            self.cameras.append(Camera(uid, photo.permute(2, 0, 1) / 255.0, data_device))


class Gaussians:
    def __init__(self, count):
        self.means, self.colors = (nn.Parameter(torch.rand(count, 3).cuda()) for _ in range(2))
        self.optimizer = torch.optim.Adam([self.means, self.colors], lr=1e-3, eps=1e-15)

    def render(self, camera):
        seen = (self.means @ camera.transform[:3, :3])[:, :2].sigmoid()
        x, y = (seen[:, 0] * (WIDTH - 1)).long(), (seen[:, 1] * (HEIGHT - 1)).long()
        index = (y * WIDTH + x).clamp(0, HEIGHT * WIDTH - 1)
        image = torch.zeros(HEIGHT * WIDTH, 3, device="cuda").index_add(0, index, self.colors)
        return image.view(HEIGHT, WIDTH, 3).permute(2, 0, 1)


def training(photos):
    scene = Scene(photos, "cpu" if FIXED else "cuda")
    gaussians = Gaussians(200_000)
    for step in range(20):
        camera = scene.cameras[step % len(scene.cameras)]
        loss = (gaussians.render(camera) - camera.original_image.cuda()).abs().mean()
        loss.backward()
        gaussians.optimizer.step()
        gaussians.optimizer.zero_grad(set_to_none=True)
    print(loss.item())


photo = torch.randint(256, (HEIGHT, WIDTH, 3), dtype=torch.uint8)
training([photo] * 150)
