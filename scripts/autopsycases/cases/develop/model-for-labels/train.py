"""Looks for animals in the images of camera traps with a detector of the user's own."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
LABELS = {str(i): name for i, name in enumerate(("animal", "person", "vehicle", "badger", "fox", "hare"))}


class Conv(nn.Sequential):
    def __init__(self, a, b, kernel=1, stride=1):
        conv = nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(b), nn.SiLU())


class C3(nn.Module):
    def __init__(self, a, b, depth):
        super().__init__()
        self.cv1, self.cv2, self.cv3 = Conv(a, b // 2), Conv(a, b // 2), Conv(b, b)
        inner = b // 2
        self.m = nn.ModuleList(nn.Sequential(Conv(inner, inner), Conv(inner, inner, 3)) for _ in range(depth))

    def forward(self, x):
        y = self.cv1(x)
        for m in self.m:
            y = y + m(y)
        return self.cv3(torch.cat([y, self.cv2(x)], dim=1))


class YOLO(nn.Module):
    def __init__(self, names, width=80):
        super().__init__()
        self.names, widths = names, [n * width for n in (1, 2, 4, 8, 12, 16)]
        self.stem = Conv(3, width, 6, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(Conv(a, b, 3, 2), C3(b, b, depth))
            for a, b, depth in zip(widths, widths[1:], (4, 8, 12, 8, 4))
        )
        self.heads = nn.ModuleList(nn.Conv2d(w, 3 * (5 + len(names)), 1) for w in widths[2:])

    def forward(self, x):
        x, levels = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        return torch.cat([h(x).flatten(2) for h, x in zip(self.heads, levels[1:])], dim=2)


class PTDetector:
    def __init__(self, model_path, force_cpu=False):
        self.device = "cpu" if force_cpu else "cuda"
        checkpoint = torch.load(model_path, map_location=self.device)
        self.model = YOLO(checkpoint["names"]).to(self.device).eval()
        self.model.load_state_dict(checkpoint["model"])

    @torch.no_grad()
    def generate_detections_one_image(self, image):
        return self.model(F.interpolate(image, size=(1280, 1280)).to(self.device)).sigmoid().amax().item()


class App:
    def __init__(self, model_path):
        self.model_path = model_path

    def get_custom_labels(self):
        self.label_detector = PTDetector(self.model_path, force_cpu=FIXED)
        return self.label_detector.model.names

    def run_detector_batch(self, images):
        self.detector = PTDetector(self.model_path)
        return [self.detector.generate_detections_one_image(image) for image in images]


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "best.pt")
    torch.save({"names": LABELS, "model": YOLO(LABELS).state_dict()}, path)
    app = App(path)
    print(app.get_custom_labels())
    print(app.run_detector_batch([torch.rand(1, 3, 1080, 1920) for _ in range(4)]))
