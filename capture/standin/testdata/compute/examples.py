"""Run the examples with small networks, and print what their parameters became.

    python compute_examples.py FOLDER cpu|cuda native|cudnn

Prints for each example a hash of all parameters, and the last loss. Dropout is off, since the device and the
CPU draw different random numbers. oneDNN is off: the CPU's convolutions are then those that the stand-in
uses. native switches cuDNN off: with it a convolution adds its bias in a separate step, which rounds once
more.
"""

import contextlib
import hashlib
import io
import os
import runpy
import sys

import torch

EXAMPLES = """
gpt2.py --batch 2 --sequence 32 --layers 2 --width 64 --heads 2 --vocabulary 500 --steps 3
mlp.py --batch 32 --width 128 --layers 4 --steps 3
vgg16.py --batch 2 --image 32 --width 8 --hidden 64 --steps 2
vit.py --batch 2 --image 32 --layers 2 --width 64 --heads 2 --steps 2
resnet50.py --batch 2 --image 32 --width 16 --blocks 1,1,1,1 --steps 2
"""
folder, device, convolutions = sys.argv[1:]
torch.backends.mkldnn.enabled = False
torch.backends.cudnn.enabled = convolutions == "cudnn"
torch.nn.Dropout.forward = lambda self, x: x

optimizers = []
initialise = torch.optim.Optimizer.__init__


def remember(self, *args, **kwargs):
    initialise(self, *args, **kwargs)
    optimizers.append(self)


torch.optim.Optimizer.__init__ = remember
for line in EXAMPLES.strip().splitlines():
    optimizers.clear()
    name, *options = line.split()
    sys.argv = [os.path.join(folder, name), *options, "--device", device]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(sys.argv[0], run_name="__main__")
    digest = hashlib.sha256()
    for o in optimizers:
        for group in o.param_groups:
            for p in group["params"]:
                digest.update(p.detach().cpu().contiguous().numpy().tobytes())
    loss = out.getvalue().splitlines()[-1].split()[3]
    print(name, digest.hexdigest()[:16], loss, flush=True)
