"""Segments an image with the networks of five folds, whose checkpoints a training left."""

import os
import subprocess
import sys
import tempfile

import torch
from nets import UNet

FIXED = "--fixed" in sys.argv
FOLDS = 5
TRAINING = """
import sys
import torch
from nets import UNet
folder, folds = sys.argv[1], int(sys.argv[2])
for fold in range(folds):
    network = UNet(channels=4, classes=4, width=96).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-2, momentum=0.99, nesterov=True)
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.save(
        {"state_dict": network.state_dict(), "optimizer_state_dict": optimizer.state_dict(), "epoch": 1000},
        f"{folder}/fold_{fold}.model",
    )
    del network, optimizer
"""


def load_model_and_checkpoint_files(folder):
    """Returns a network without weights, and those of each fold."""
    network = UNet(channels=4, classes=4, width=96).cuda()
    where = torch.device("cpu") if FIXED else None
    params = [torch.load(f"{folder}/fold_{i}.model", map_location=where) for i in range(FOLDS)]
    return network, params


def predict_case(network, params, image):
    softmax = None
    for p in params:
        network.load_state_dict(p["state_dict"])
        network.eval()
        with torch.no_grad():
            result = torch.softmax(network(image), dim=1)
        softmax = result if softmax is None else softmax + result
    return (softmax / len(params)).argmax(1)


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, "-c", TRAINING, folder, str(FOLDS)], check=True)
    network, params = load_model_and_checkpoint_files(folder)
    print(os.listdir(folder))
image = torch.rand(1, 4, 320, 320).cuda()
print(predict_case(network, params, image).shape)
