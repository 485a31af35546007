"""Trains a detector on a card that a server's process has filled."""

import subprocess
import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
SERVER = """
import torch
x = torch.empty(11 << 30, dtype=torch.uint8, device="cuda")
print("ready", flush=True)
input()
"""

server = None
if not FIXED:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    server.stdout.readline()
try:
    model = ResNet(classes=2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        images, labels = torch.rand(80, 3, 224, 224).cuda(), torch.randint(2, (80,)).cuda()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
finally:
    if server:
        server.kill()
