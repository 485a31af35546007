"""Train some layers for a given number of steps. "wide" makes the layers twice as wide; "momentum" gives the
optimizer state; "less" uses the file that gmemtop plan --emit wrote. While a file named "hold" exists, extra
steps run first and are undone afterwards, so that the training lasts as long as its watcher needs and learns
the same. They leave the watcher half of the processor."""
import os, sys, time
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
n = 2 if "wide" in sys.argv else 1
layers = [m for _ in range(6) for m in (torch.nn.Linear(128 * n, 512), torch.nn.GELU(),
                                        torch.nn.Linear(512, 128 * n), torch.nn.LayerNorm(128 * n))]
model = torch.nn.Sequential(*layers)
momentum = 0.5 if "momentum" in sys.argv else 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
less = None
if "less" in sys.argv:
    import less_memory

    less = less_memory.carry(optimizer)


def train():
    optimizer.zero_grad()
    loss = model(torch.randn(256, 128 * n)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


if os.path.exists("hold"):
    state = torch.random.get_rng_state(), [p.detach().clone() for p in model.parameters()]
    open("held", "w").close()
    while os.path.exists("hold"):
        loss = train()
        time.sleep(0.01)
    torch.random.set_rng_state(state[0])
    for p, was in zip(model.parameters(), state[1]):
        p.data.copy_(was)
for _ in range(int(sys.argv[1])):
    loss = train()
print(repr(loss.item()), [repr(p.sum().item()) for p in model.parameters()])
if less is not None:
    assert not less.why and sum(less.moved[:3]) > 0, (less.why, less.moved)
    assert less.moved[3] == 0, less.moved
    less.remove()
    print("nothing stayed that was to leave", file=sys.stderr)
