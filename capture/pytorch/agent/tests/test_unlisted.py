"""Tests steps of optimizers that torch does not know, with real torch."""

import pytest

from agent.unlisted import LOOKED, Unlisted


def test_a_step_ends_where_parameters_or_gradients_have_changed_before_a_module_runs_again():
    torch = pytest.importorskip("torch", reason="needs torch")
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(LOOKED)])
    heard = []
    broken = []
    unlisted = Unlisted(
        torch, lambda optimizer, module, inputs: heard.append((optimizer, module)), broken.append
    )

    def passes():
        before = len(heard)
        model(torch.ones(1, 4)).sum().backward()
        unlisted.backward_left()
        return len(heard) - before

    def descends():
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad

    try:
        assert [passes(), passes(), passes()] == [0, 0, 0]  # gradients are accumulated
        descends()
        assert passes() == 1
        for p in model.parameters():
            p.data.add_(p.grad)  # no version counter counts this
            p.grad.zero_()
        assert passes() == 1
        for p in model.parameters():
            p.grad = None
        assert passes() == 1
        assert passes() == 0
        descends()
        with torch.no_grad():
            model(torch.ones(1, 4))  # an evaluation follows the step
        assert passes() == 0
        assert heard == [(unlisted, model)] * 4
        assert sum(p.numel() for g in unlisted.param_groups for p in g["params"]) == LOOKED * 20
        torch.nn.ReLU()(torch.ones(1))
        assert len(heard) == 4
        for k in range(3):
            model(torch.ones(1, 4))
            for p in model.parameters():
                p.grad.zero_()
            unlisted.backward_enters()
            model(torch.ones(1, 4)).sum().backward()
            unlisted.backward_left()
            assert len(heard) == 4 + k  # seen with the second
        assert not broken
        unlisted.before = [()]
        unlisted.looked = [lambda: "no tensor"]  # an error of ours: the module runs as before
        assert model(torch.ones(1, 4)).shape == (1, 4)
        assert [type(e) for e in broken] == [AttributeError]
        assert len(heard) == 6
    finally:
        unlisted.hook.remove()
