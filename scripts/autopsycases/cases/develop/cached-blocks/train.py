"""Calibrates a quantized network block by block on the cached inputs and outputs of each block."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv
KEEP_GPU = not FIXED


class Stop(Exception):
    pass


def save_inp_oup_data(model, block, data, batch_size=32):
    cached = ([], [])

    def hook(module, inputs, output):
        for into, value in zip(cached, (inputs[0], output)):
            value = value.detach()
            into.append(value if KEEP_GPU else value.cpu())
        raise Stop

    handle = block.register_forward_hook(hook)
    with torch.no_grad():
        for i in range(0, len(data), batch_size):
            try:
                model(data[i : i + batch_size].cuda())
            except Stop:
                pass
    handle.remove()
    return torch.cat(cached[0]), torch.cat(cached[1])


def reconstruct(model, block, data, iterations=20):
    inputs, outputs = save_inp_oup_data(model, block, data)
    optimizer = torch.optim.Adam(block.parameters(), lr=1e-4)
    for _ in range(iterations):
        at = torch.randint(len(inputs), (32,))
        loss = F.mse_loss(block(inputs[at].cuda()), outputs[at].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = ResNet().cuda().eval()
data = torch.rand(1024, 3, 224, 224)
for i in reversed(range(len(model.stages))):
    reconstruct(model, model.stages[i], data)
    print("block", i)
    if i <= 3 or FIXED and i <= 12:
        break
