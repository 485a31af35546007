"""Classifies a test set and joins the results on the CPU."""

import sys
from contextlib import nullcontext

import torch
from nets import ResNet

FIXED = "--fixed" in sys.argv

model = ResNet(classes=100).cuda()
model.eval()
y_predlabel = torch.empty(0, 100)
with torch.no_grad() if FIXED else nullcontext():
    for batch in range(12):
        batch_x = torch.rand(24, 3, 224, 224).cuda()
        batch_y_predlabel = model(batch_x)
        y_predlabel = torch.cat((y_predlabel, batch_y_predlabel.cpu()))
print(y_predlabel.shape)
