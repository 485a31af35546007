"""Trains a small ResNet and runs other ops of cuDNN on the stand-in, and compares with one process on the
CPU."""
import copy, os, sys
import torch
from torch import nn

torch.backends.mkldnn.enabled = False  # the CPU's plain kernels on both sides


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else nn.Identity()

    def forward(self, x):
        return torch.relu(self.nb(self.b(torch.relu(self.na(self.a(x))))) + self.skip(x))


def resnet18(width=8):
    """ResNet-18's layers with fewer channels."""
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    i = width
    for stage in range(4):
        for block in range(2):
            o = width << stage
            layers.append(Block(i, o, 2 if stage and not block else 1))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10))


def train(net, x, y, steps=2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    return loss


torch.manual_seed(1)
cpu = resnet18()
gpu = copy.deepcopy(cpu).cuda()
x, y = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
train(cpu, x, y)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    train(gpu, x.cuda(), y.cuda())
for (name, a), b in zip(cpu.state_dict().items(), gpu.state_dict().values(), strict=True):
    if not torch.allclose(a, b.cpu(), rtol=1e-3, atol=1e-4):
        sys.exit(f"{name} is {(a - b.cpu()).abs().max()} away from the CPU's")
ops = {e.key: e.count for e in profile.key_averages()}
print("cudnn_convolution", ops.get("aten::cudnn_convolution"), "cudnn_batch_norm", ops.get("aten::cudnn_batch_norm"), "native", ops.get("aten::native_batch_norm"),
      ops.get("aten::thnn_conv2d"))

# PyTorch allocates the workspace: by default 4 bytes for each step of the GEMM, which is 16·3·3 forward. A
# plan is cached for each shape, so each rule gets its own shape.
w = torch.randn(32, 16, 3, 3, device="cuda")
for n, rule in enumerate(("", "gemm", "none", "1MiB"), 2):
    x = torch.randn(n, 16, 24, 24, device="cuda")
    os.environ["STANDIN_CUDNN"] = rule
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history()
    out = nn.functional.conv2d(x, w)
    torch.cuda.synchronize()
    allocations = [e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
    torch.cuda.memory._record_memory_history(None)
    allocations.remove(out.numel() * 4)
    print(f"workspace by rule {rule!r}: {allocations}")

# Other shapes and kinds go through without an error.
with torch.backends.cudnn.flags(benchmark=True):
    nn.functional.conv2d(x, w)
nn.functional.conv_transpose2d(x, torch.randn(16, 8, 2, 2, device="cuda"), stride=2)
nn.functional.conv3d(torch.randn(1, 4, 6, 6, 6, device="cuda"), torch.randn(4, 2, 3, 3, 3, device="cuda"), groups=2)
m = nn.Conv2d(16, 8, 3).to("cuda", torch.bfloat16, memory_format=torch.channels_last)
m(x.bfloat16().contiguous(memory_format=torch.channels_last)).float().sum().backward()
torch.cuda.synchronize()
