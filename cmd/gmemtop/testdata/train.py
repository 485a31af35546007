"""Trains some layers for as many steps as it is told: "wide" ones are twice as wide, and with "less" it uses the file that gmemtop plan --emit wrote."""
import os, sys, time
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
n = 2 if "wide" in sys.argv else 1
layers = [m for _ in range(6) for m in (torch.nn.Linear(128 * n, 512), torch.nn.GELU(), torch.nn.Linear(512, 128 * n), torch.nn.LayerNorm(128 * n))]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
less = None
if "less" in sys.argv:
    import less_memory

    less = less_memory.carry(optimizer)
step = 0
while step < int(sys.argv[1]):
    if os.path.exists("hold") and step == 10:  # until a viewer has come and gone
        state = torch.random.get_rng_state(), [p.detach().clone() for p in model.parameters()]
        open("held", "w").close()
        while os.path.exists("hold"):
            optimizer.zero_grad()
            loss = model(torch.randn(256, 128 * n)).square().mean()
            loss.backward()
            optimizer.step()
        torch.random.set_rng_state(state[0])
        for p, was in zip(model.parameters(), state[1]):
            p.data.copy_(was)
    optimizer.zero_grad()
    loss = model(torch.randn(256, 128 * n)).square().mean()
    loss.backward()
    optimizer.step()
    step += 1
    if "GMEMTOP_SOCK" in os.environ:  # it is to last longer than planning on a busy machine
        time.sleep(0.02)
print(repr(loss.item()), [repr(p.sum().item()) for p in model.parameters()])
if less is not None:
    assert not less.why and sum(less.moved[:3]) > 0, (less.why, less.moved)
    assert less.moved[3] == 0, less.moved
    less.remove()
    print("nothing stayed that was to leave", file=sys.stderr)
