"""Tests optimizer state that waits on the host, with real torch."""

import pytest

from agent import waiting
from agent.optimizers import Optimizers
from agent.parked import Parked

torch = pytest.importorskip("torch", reason="needs torch")


@pytest.mark.parametrize("fails", range(4))
def test_state_that_finds_no_memory_comes_back_after_memory_was_freed(monkeypatch, fails):
    """It is tried three times. Then the error is the program's, but the state is still whole."""

    def learnt(parks):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(64, 64))
        optimizer, optimizers = torch.optim.AdamW([weight], lr=0.1), Optimizers()
        optimizers.add(optimizer)

        def step():
            weight.square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        plan = {"device": "cpu", "state": 2 * 64 * 64 * 4, "values": [], "groups": []}
        carrier = Parked(torch, plan, optimizers) if parks else None
        if carrier is None:
            step()
            return optimizer.state[weight], None
        carrier.begin()
        tries, real = [], waiting.space_for

        def space_for(*args):
            tries.append(1)
            if len(tries) <= fails:
                raise torch.cuda.OutOfMemoryError("no memory")
            return real(*args)

        monkeypatch.setattr(waiting, "space_for", space_for)
        carrier.optimizer_enters(optimizer, False)
        if fails < 3:
            step()
        else:
            with pytest.raises(torch.cuda.OutOfMemoryError):
                optimizer.state[weight]["exp_avg"].add_(1)
            step()
        carrier.optimizers_left()
        carrier.next()
        carrier.remove()
        return optimizer.state[weight], carrier

    want = learnt(False)[0]
    got, carrier = learnt(True)
    for name in ("exp_avg", "exp_avg_sq"):
        assert type(got[name]) is torch.Tensor
        assert torch.equal(got[name], want[name])
    assert getattr(carrier.why, "code", "") == ("state_retried" if fails in (1, 2) else "")


def test_state_that_finds_no_memory_when_the_plan_ends_comes_back_when_it_is_used(monkeypatch):
    weight = torch.nn.Parameter(torch.randn(64, 64))
    optimizer, optimizers = torch.optim.AdamW([weight]), Optimizers()
    optimizers.add(optimizer)
    weight.sum().backward()
    optimizer.step()
    want = optimizer.state[weight]["exp_avg"].clone()
    carrier = Parked(torch, {"device": "cpu", "state": 2 * 64 * 64 * 4, "values": []}, optimizers)
    carrier.begin()
    with monkeypatch.context() as patch:

        def space_for(*args):
            raise torch.cuda.OutOfMemoryError("no memory")

        patch.setattr(waiting, "space_for", space_for)
        carrier.remove()
    del carrier
    there = optimizer.state[weight]["exp_avg"]
    assert waiting.waits(type(there))
    assert torch.equal(there, want)
    assert not waiting.waits(type(there))
