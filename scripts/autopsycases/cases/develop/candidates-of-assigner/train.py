"""Trains a one-stage detector whose labels are assigned by a cost of classes and boxes."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
CLASSES = 80


class DynamicSoftLabelAssigner:
    def __init__(self, topk=13, iou_weight=3.0):
        self.topk, self.iou_weight = topk, iou_weight

    def bbox_overlaps(self, a, b):
        lt = torch.max(a[:, None, :2], b[None, :, :2])
        rb = torch.min(a[:, None, 2:], b[None, :, 2:])
        wh = (rb - lt).clamp(min=0)
        overlap = wh[..., 0] * wh[..., 1]
        area = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
        return overlap / (area[0][:, None] + area[1][None] - overlap + 1e-6)

    def assign(self, pred_scores, decoded_bboxes, gt_bboxes, gt_labels):
        device = decoded_bboxes.device
        if FIXED and len(gt_bboxes) > 100:
            pred_scores, decoded_bboxes, gt_bboxes, gt_labels = (
                x.cpu() for x in (pred_scores, decoded_bboxes, gt_bboxes, gt_labels)
            )
        num_bboxes, num_gt = len(decoded_bboxes), len(gt_bboxes)
        pairwise_ious = self.bbox_overlaps(decoded_bboxes, gt_bboxes)
        iou_cost = -torch.log(pairwise_ious + 1e-7) * self.iou_weight
        gt_onehot_label = F.one_hot(gt_labels, CLASSES).float()[None].repeat(num_bboxes, 1, 1)
        scores = pred_scores[:, None].repeat(1, num_gt, 1)
        soft_label = gt_onehot_label * pairwise_ious[..., None]
        scale_factor = soft_label - scores.sigmoid()
        soft_cls_cost = F.binary_cross_entropy_with_logits(scores, soft_label, reduction="none")
        soft_cls_cost = (soft_cls_cost * scale_factor.abs().pow(2.0)).sum(dim=-1)
        cost = soft_cls_cost + iou_cost
        _, candidates = torch.topk(cost, self.topk, dim=0, largest=False)
        return candidates.to(device)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = ResNet()
        self.cls = nn.Linear(self.backbone.channels, CLASSES)
        self.reg = nn.Linear(self.backbone.channels, 4)
        self.assigner = DynamicSoftLabelAssigner()

    def forward(self, images):
        x = self.backbone.stages(F.max_pool2d(self.backbone.stem(images), 3, 2, 1))
        x = F.interpolate(x, scale_factor=4, mode="nearest").flatten(2).transpose(1, 2)
        return self.cls(x), self.reg(x)

    def loss(self, images, gt_bboxes, gt_labels):
        cls_scores, bbox_preds = self(images)
        losses = []
        for scores, bboxes, gt, labels in zip(cls_scores, bbox_preds, gt_bboxes, gt_labels):
            with torch.no_grad():
                candidates = self.assigner.assign(scores.detach(), bboxes.detach(), gt, labels)
            picked = candidates.flatten() % len(scores)
            losses.append(F.l1_loss(bboxes[picked], gt.repeat(len(candidates), 1)) + scores[picked].mean())
        return torch.stack(losses).mean()


def annotations(boxes):
    return torch.rand(boxes, 4).cuda(), torch.randint(CLASSES, (boxes,)).cuda()


model = Detector().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
for i, counts in enumerate(((6, 12), (20, 3), (9, 31), (14, 420), (8, 16))):
    gt_bboxes, gt_labels = zip(*(annotations(n) for n in counts))
    loss = model.loss(torch.rand(2, 3, 640, 640).cuda(), gt_bboxes, gt_labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())
