"""Train while optimizer state waits on the host, and check that nothing else is different.

usage: parked.py AGENT.PY, which trains on a GPU if there is one

Each optimizer trains twice. Weights, state and checkpoints must be the same to the bit, the state must be
away while no optimizer steps, and afterwards all of it must be as if it had never left.
"""
import copy
import functools
import io
import sys
import threading
from types import SimpleNamespace

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    agent = {"__name__": "agent"}
    exec(compile(f.read(), sys.argv[1], "exec"), agent)

if agent["storage_references"](torch) is None:
    print("this torch does not count references")
    sys.exit(0)

waits = agent["waits"]
DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, 1e-2, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def tensors(optimizer):
    return [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]


def there(optimizer):
    """What is large enough to leave, and has not."""
    return [t for t in tensors(optimizer) if not waits(type(t)) and t.numel() * 4 >= agent["LEAST_STATE"]]


def away(optimizer):
    return sum(waits(type(t)) for t in tensors(optimizer))


def same(a, b):
    with torch.no_grad():
        return len(a) == len(b) and all(
            torch.equal(x.flatten().view(torch.uint8), y.flatten().view(torch.uint8)) for x, y in zip(a, b)
        )


def parked(optimizer, *others):
    known = SimpleNamespace(alive=lambda: [optimizer, *others])
    carrier = agent["Parked"](torch, {"device": DEVICE, "state": 1}, known)
    hooks = [
        register_optimizer_step_pre_hook(lambda o, args, kwargs: carrier.optimizer_enters(o, len(args) > 1)),
        register_optimizer_step_post_hook(lambda o, args, kwargs: carrier.optimizers_left()),
    ]
    carrier.begin()
    return carrier, hooks


def learn(make, plan, steps=9):
    """The weights after some steps, and what is in a checkpoint of the third."""
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.Tanh(), torch.nn.Linear(60, 50)).to(DEVICE)
    optimizer = make(net.parameters())
    carrier, most, saved = None, [], None
    for step in range(steps):
        x = torch.randn(16, 40).to(DEVICE)

        def closure():
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        if isinstance(optimizer, torch.optim.LBFGS) or step % 2:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        if plan and step == 1:
            carrier, hooks = parked(optimizer)
        if carrier:
            assert isinstance(optimizer, torch.optim.LBFGS) or not there(optimizer)
            moved = carrier.next()
            assert not carrier.why, carrier.why
            assert moved[5] == 0, moved
            assert all(t.is_cuda or DEVICE == "cpu" or not t.dim() for t in there(optimizer))
            if step > 2 and not isinstance(optimizer, torch.optim.LBFGS):
                assert moved[0] > 0 and moved[1] > 0, moved
                assert step > 4 or moved[4] > 0, moved
        if step == 3:
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            loaded = make([torch.nn.Parameter(p.detach().clone()) for p in net.parameters()])
            loaded.load_state_dict(torch.load(file))
            saved = [t.clone() for o in (loaded, copy.deepcopy(optimizer)) for t in tensors(o)]
    if carrier:
        carrier.remove()
        for hook in hooks:
            hook.remove()
        assert away(optimizer) == 0
        for t in tensors(optimizer):
            assert type(t) is torch.Tensor and agent["PLACE"] not in t.__dict__, t
        for _ in range(2):  # and the optimizer goes on
            optimizer.step(closure)
    else:
        for _ in range(2):
            optimizer.step(closure)
    return [p.detach().clone() for p in net.parameters()], [t.clone() for t in tensors(optimizer)], saved


def check_results():
    for name, make in OPTIMIZERS.items():
        without, under = learn(make, False), learn(make, True)
        for what, a, b in zip(("weights", "state", "checkpoint"), without, under):
            assert same(a, b), "%s: other %s" % (name, what)


def check_what_is_there():
    """One parameter's state at a time in a loop, all of it for kernels that take lists."""
    for foreach in (False, True):
        ps = [torch.nn.Parameter(torch.randn(64, 64).to(DEVICE)) for _ in range(6)]
        optimizer = torch.optim.Adam(ps, foreach=foreach)
        for p in ps:
            p.grad = torch.randn_like(p)
        optimizer.step()
        carrier, hooks = parked(optimizer)
        held = []
        came = carrier.came
        carrier.came = lambda t, place, took: (came(t, place, took), held.append(12 - away(optimizer)))
        optimizer.step()
        assert max(held) == (12 if foreach or DEVICE != "cpu" else 2), held
        assert away(optimizer) == 12
        carrier.remove()
        for hook in hooks:
            hook.remove()


def check_others_that_hold_it():
    """A tensor whose bytes something else looks at stays, and a plan that counts on it is refused."""
    p = torch.nn.Parameter(torch.randn(64, 64).to(DEVICE))
    optimizer = torch.optim.SGD([p], 0.1, momentum=0.9)
    p.grad = torch.randn_like(p)
    optimizer.step()
    (state,) = tensors(optimizer)
    view = state.view(-1)
    try:
        parked(optimizer)
        raise AssertionError("it has begun")
    except agent["Refused"] as e:
        assert e.why.code == "state_stays", e.why
    view.fill_(2.0)
    assert state[0, 0] == 2.0
    del view
    carrier, hooks = parked(optimizer)
    again = state  # the object itself
    assert waits(type(again)) and again.sum() == 2.0 * 64 * 64 and not waits(type(again))
    carrier.optimizers_left()
    assert waits(type(state))
    state.mul_(2)
    assert state[1, 1] == 4.0
    carrier.optimizers_left()
    carrier.rack.places.clear()
    carrier.remove()
    del carrier  # what waits needs no agent to come back
    assert state[1, 1] == 4.0 and type(state) is torch.Tensor
    for hook in hooks:
        hook.remove()


def check_other_threads():
    """State of an optimizer that steps on another thread stays from then on."""
    of = {}
    for name in ("here", "there"):
        p = torch.nn.Parameter(torch.randn(64, 64).to(DEVICE))
        of[name] = torch.optim.SGD([p], 0.1, momentum=0.9)
        p.grad = torch.randn_like(p)
        of[name].step()
    carrier, hooks = parked(of["here"], of["there"])
    assert away(of["here"]) == away(of["there"]) == 1
    thread = threading.Thread(target=of["there"].step)
    thread.start()
    thread.join()
    of["here"].step()
    assert (away(of["here"]), away(of["there"])) == (1, 0)
    carrier.remove()
    for hook in hooks:
        hook.remove()


def check_that_a_difference_is_told():
    p = torch.nn.Parameter(torch.randn(64, 64).to(DEVICE))
    optimizer = torch.optim.SGD([p], 0.1, momentum=0.9)
    p.grad = torch.randn_like(p)
    optimizer.step()
    carrier, hooks = parked(optimizer)
    for _, place in carrier.rack.places.values():
        place.host[3] += 1
    optimizer.step()
    assert carrier.next()[4:] == (1, 1)
    assert carrier.differs and carrier.why.code == "differs_state", carrier.why
    carrier.remove()
    for hook in hooks:
        hook.remove()


check_results()
print("on", DEVICE)
check_what_is_there()
check_others_that_hold_it()
check_other_threads()
check_that_a_difference_is_told()
