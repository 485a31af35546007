"""Tracks objects that a detector finds in the frames of a camera, with a memory of past frames."""

import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv
DETECTION_INTERVAL = 20
OBJECTS = 3


class ImageEncoder(nn.Module):
    def __init__(self, width=256, layers=4):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.ModuleList(Block(width, 8, causal=False) for _ in range(layers))

    def forward(self, images):
        x = self.patch_embed(images)
        shape = x.shape
        x = x.flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x.transpose(1, 2).reshape(shape)


class CameraPredictor(nn.Module):
    def __init__(self, num_maskmem=7):
        super().__init__()
        self.num_maskmem = num_maskmem
        self.image_encoder = ImageEncoder()
        self.memory_encoder = nn.Conv2d(257, 64, 3, padding=1)
        self.memory_attention = nn.MultiheadAttention(256, 1, kdim=64, vdim=64, batch_first=True)
        self.mask_decoder = nn.Sequential(nn.ConvTranspose2d(256, 32, 4, 4), nn.GELU(), nn.Conv2d(32, 1, 1))

    @torch.inference_mode()
    def init_state(self):
        return {"images": [], "output_dict": {}, "num_frames": 0}

    @torch.inference_mode()
    def track(self, inference_state, image):
        image = image.to("cuda")
        inference_state["images"].append(image)
        frame_idx = inference_state["num_frames"]
        features = self.image_encoder(image).expand(OBJECTS, -1, -1, -1)
        pix_feat = features
        memories = [
            inference_state["output_dict"][i]["maskmem_features"]
            for i in range(max(0, frame_idx - self.num_maskmem), frame_idx)
        ]
        if memories:
            memory = torch.cat([m.flatten(2).transpose(1, 2) for m in memories[-2:]], dim=1)
            queries = features.flatten(2).transpose(1, 2)
            attended, _ = self.memory_attention(queries, memory, memory, need_weights=False)
            pix_feat = attended.transpose(1, 2).reshape(features.shape)
        pred_masks = self.mask_decoder(pix_feat)
        mask_for_mem = F.interpolate(pred_masks, size=features.shape[2:]).sigmoid()
        maskmem_features = self.memory_encoder(torch.cat([features, mask_for_mem], dim=1))
        inference_state["output_dict"][frame_idx] = {
            "maskmem_features": maskmem_features,
            "pred_masks": pred_masks,
        }
        inference_state["num_frames"] += 1
        return (pred_masks > 0).cpu()


def detect(frame):
    """The boxes of another model, which runs elsewhere."""
    return torch.rand(OBJECTS, 4)


video_predictor = CameraPredictor().cuda().eval()
inference_state = video_predictor.init_state()
objects = {}
for frame_idx in range(320):
    frame = torch.rand(1, 3, 1024, 1024)
    if frame_idx % DETECTION_INTERVAL == 0:
        boxes = detect(frame)
        if FIXED:
            inference_state = video_predictor.init_state()
        objects[frame_idx] = boxes
    masks = video_predictor.track(inference_state, frame)
