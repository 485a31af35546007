"""Tests rerunning ops, with real torch."""

import pytest

from agent.carry import Carrier
from agent.draws import chance_of, draws
from agent.manage import Manager
from agent.optimizers import Optimizers
from agent.outbox import Outbox
from agent.tally import Tally
from agent.wishes import Wishes


def learnt(torch, net, x, plan, loss=lambda net, x: net(x).sum()):
    """The gradient of a net's weight under a plan, and three counts of tensors: those that stayed although
    the plan drops them, those that were compared with what had left, and those that differed."""
    carrier = Carrier(torch, plan)
    carrier.begin()
    try:
        loss(net, x).backward()
        figures = carrier.next()[3:6]
    finally:
        carrier.remove()
    assert not carrier.why, carrier.why
    return net.weight.grad, figures


def drops(groups, saves):
    """A plan that drops four-element tensors: the numbers of the saves, each with its group."""
    values = [
        {"save": n, "bytes": 16, "how": "drop", "group": g, "slot": 0, "release": 0, "fetch": 0}
        for n, g in saves
    ]
    return {"device": "cpu", "values": values, "groups": groups, "saves": 3}


def test_what_is_made_after_its_group_has_run_again_stays():
    """For example, a program asks for gradients in its forward pass, but did not when the plan was made."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self, early):
            super().__init__()
            self.weight, self.early = torch.nn.Parameter(torch.full((4,), 0.3)), early

        def forward(self, x):
            made = torch.exp(x * self.weight) + 1
            if self.early:
                torch.autograd.grad(made.sum(), self.weight, retain_graph=True)
            return torch.sigmoid(made)

    x = torch.full((4,), 0.1)
    plan = drops([[["aten::exp", 0], ["aten::add", 0], ["aten::sigmoid", 0]]], [(1, 0), (2, 0)])
    want = learnt(torch, Net(False), x, {})[0]
    for early, figures in ((False, (0, 2, 0)), (True, (1, 1, 0))):
        got, counted = learnt(torch, Net(early), x, plan)
        assert torch.equal(got, want)
        assert counted == figures


def test_what_only_another_group_makes_is_held():
    """For example, layers are left out at random, so an op reads what another one read when the plan was
    made."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self, skips):
            super().__init__()
            self.weight, self.skips = torch.nn.Parameter(torch.full((4,), 0.3)), skips

        def forward(self, x):
            h = x * self.weight + 1
            if not self.skips:
                h = torch.exp(h)
            return torch.sigmoid(h)

    x = torch.full((4,), 0.1)
    plan = drops([[["aten::add", 0], ["aten::exp", 0]], [["aten::sigmoid", 0]]], [(1, 1), (2, 1)])
    for skips, figures in ((False, (1, 1, 0)), (True, (0, 1, 0))):
        got, counted = learnt(torch, Net(skips), x, plan)
        assert torch.equal(got, learnt(torch, Net(skips), x, {})[0])
        assert counted == figures


def test_what_was_changed_since_its_group_made_it_is_read_as_it_is():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 3.0))

        def forward(self, x):
            made = torch.exp(x * self.weight) + 1  # the second tensor that autograd saves is what exp returns
            made.mul_(2)  # is in no group
            return torch.exp(made.clone())  # the third one

    x = torch.full((4,), 0.1)
    groups = [[["aten::exp", 0], ["aten::add", 0]], [["aten::clone", 0], ["aten::exp", 1]]]
    got, counted = learnt(torch, Net(), x, drops(groups, [(1, 0), (2, 1)]))
    assert torch.equal(got, learnt(torch, Net(), x, {})[0])
    assert counted == (0, 2, 0)


def test_what_another_group_reads_is_changed_only_after_that_group_has_run_again():
    """For example, a recurrent layer copies a state that it changes in place later."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            made = torch.exp(x * self.weight) + 1
            copied = torch.exp(made.clone())  # the third tensor that autograd saves
            made.mul_(2)
            return copied + torch.sigmoid(made)  # the fourth one is what sigmoid returns

    x = torch.full((4,), 0.1)
    groups = [
        [["aten::exp", 0], ["aten::add", 0], ["aten::mul_", 0], ["aten::sigmoid", 0]],
        [["aten::clone", 0], ["aten::exp", 1]],
    ]
    got, counted = learnt(torch, Net(), x, drops(groups, [(2, 1), (3, 0)]))
    assert torch.equal(got, learnt(torch, Net(), x, {})[0])
    assert counted == (0, 2, 0)


@pytest.mark.parametrize(
    "given, how",
    [(False, "copied"), (True, "copied"), (False, "backed up"), (False, "reported"), (True, "reported")],
)
def test_what_the_program_changes_outside_of_modules_is_read_as_it_was(given, how):
    """For example, a loop scales a module's output in place after the loss was computed from it, but only in
    a few steps, so the plan knows nothing of it."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, made):
            if not given:
                made = made * self.weight
            return {"made": [made], "loss": torch.exp(self.weight + made.clone()).sum()}

    groups = [[["aten::clone", 0], ["aten::add", 0], ["aten::exp", 0]]]
    plan = drops(groups, [(0 if given else 1, 0)])
    plan["saves"] = 1 if given else 2
    plan["backups"] = [[["aten::mul", 0]]] if how == "backed up" else []
    plan["copies"] = 16 if how == "copied" else 15

    def trained(plan):
        net, carrier, grads = Net(), Carrier(torch, plan), []
        carrier.begin()
        for step in range(4):
            x = torch.full((4,), 0.1)
            out = net(x)
            if step == 3:
                (x if given else out["made"][0]).mul_(2)
            out["loss"].backward()
            missed, compared = carrier.next()[3:5]
            assert (missed, compared) == (0, 1 if plan.get("groups") and step < 3 else 0)
            why = "changed_outside" if how == "reported" and plan.get("groups") and step == 3 else ""
            assert getattr(carrier.why, "code", "") == why
            grads.append(net.weight.grad.clone())
        carrier.remove()
        return grads

    alike = [torch.equal(a, b) for a, b in zip(trained({}), trained(plan))]
    assert alike == [True, True, True, how != "reported"]


def twice(torch, weight, x):
    made = x * weight
    return made, (torch.sigmoid(made.clone()) + torch.exp(made.clone())).sum()


def chained(torch, weight, x):
    first = torch.tanh(x + weight)
    made = first * weight  # saves first
    return made, torch.sigmoid(made.clone()).sum()


TWO = [["aten::clone", 0], ["aten::sigmoid", 0]], [["aten::clone", 1], ["aten::exp", 0]]
TIMES = ["aten::mul", 0]


@pytest.mark.parametrize(
    "forward, groups, backups, dropped",
    [
        pytest.param(twice, [[TIMES, *TWO[0]], TWO[1]], [], [1, 2], id="another group has not run yet"),
        pytest.param(twice, [*TWO], [[TIMES]], [1, 2], id="two groups read what a backup makes"),
        pytest.param(
            chained,
            [[["aten::add", 0], ["aten::tanh", 0], *TWO[0]]],
            [[TIMES]],
            [0, 3],
            id="a backup reads what the group makes",
        ),
    ],
)
def test_what_the_program_changed_is_made_again(forward, groups, backups, dropped):
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            return forward(torch, self.weight, x)

    def loss(net, x):
        made, out = net(x)
        made.mul_(2)
        return out

    x = torch.full((4,), 0.1)
    plan = drops(groups, [(n, min(k, len(groups) - 1)) for k, n in enumerate(dropped)])
    plan.update(backups=backups, saves=dropped[-1] + 1)
    want = learnt(torch, Net(), x, {}, loss)[0]
    got, counted = learnt(torch, Net(), x, plan, loss)
    assert torch.equal(got, want)
    assert counted == (0, 2, 0)


def test_a_backup_is_forgotten_once_nothing_reads_what_it_makes():
    """Its inputs would stay in memory until the step's end."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            made = x * self.weight
            return made, torch.exp(made.clone()).sum()

    plan = drops([[["aten::clone", 0], ["aten::exp", 0]]], [(1, 0)])
    plan["saves"], plan["backups"] = 2, [[["aten::mul", 0]]]
    carrier = Carrier(torch, plan)
    carrier.begin()
    held = Net()(torch.full((4,), 0.1))
    step = carrier.now
    assert sorted(step.calls) == [0, 1]
    held[1].backward()
    assert not step.calls and step.over == {0, 1}
    carrier.remove()


@pytest.mark.parametrize("within", [True, False])
def test_what_the_program_changes_between_two_modules_is_not_made_again_without_the_change(within):
    """The second module reads it in the group that made it, or the program saves it itself."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class First(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Second(torch.nn.Module):
        def forward(self, x):
            return torch.exp(x * 1)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))
            self.first, self.second = First(), Second()

    def loss(net, x):
        made = net.first(x * net.weight)
        with torch.no_grad():
            made.mul_(2)
        return (net.second(made) if within else torch.sin(made)).sum()

    x = torch.full((4,), 0.1)
    groups = [[["aten::add", 0], ["aten::mul", 0], ["aten::exp", 0]]]
    plan = drops(groups, [(1, 0)])
    want = learnt(torch, Net(), x, {}, loss)[0]
    assert torch.equal(learnt(torch, Net(), x, plan, loss)[0], want)


def test_an_evaluation_between_two_steps_is_left_alone():
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            return torch.sigmoid(torch.exp(x * self.weight))

    class Evaluated(Net):
        def __call__(self, x):
            with torch.no_grad():
                Net.__call__(self, 2 * x)
            return Net.__call__(self, x)

    x = torch.full((4,), 0.1)
    plan = drops([[["aten::exp", 0], ["aten::sigmoid", 0]]], [(1, 0), (2, 0)])
    want = learnt(torch, Net(), x, {})[0]
    for trained in (True, False):  # if the plan knows of evaluations, their ops count, but apart
        got, counted = learnt(torch, Evaluated(), x, dict(plan, trained=trained))
        assert torch.equal(got, want)
        assert counted == (0, 2, 0)


def test_an_op_without_gradients_has_a_number_of_its_own():
    """As in an autograd function, whose forward pass runs without gradients."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            return torch.sigmoid(Twice.apply(torch.exp(x * self.weight)))

    x = torch.full((4,), 0.1)
    want = learnt(torch, Net(), x, {})[0]
    for number, figures in ((-1, (0, 1, 0)), (1, (1, 0, 0))):
        plan = drops([[["aten::mul", 0], ["aten::exp", 0], ["aten::exp", number]]], [(2, 0)])
        got, counted = learnt(torch, Net(), x, plan)
        assert torch.equal(got, want)
        assert counted == figures


@pytest.mark.parametrize(
    ("leaving", "abandoned", "number", "ends"),
    [(False, False, 7, False), (True, False, 7, True), (False, True, 7, True), (False, True, 0, False)],
)
def test_a_plan_ends_where_no_step_does(leaving, abandoned, number, ends):
    """For example, the program only evaluates from now on."""
    torch = pytest.importorskip("torch", reason="needs torch")
    wishes = Wishes(Tally(None))
    manager = Manager(torch, Outbox(Tally(None)), wishes, Optimizers())
    assert manager._begin(number, Carrier(torch, {})) == ""
    wishes.leaving, wishes.abandoned = leaving, abandoned
    try:
        torch.nn.ReLU()(torch.ones(1))
        assert (manager.carrier is None) == ends
    finally:
        manager.off()


def test_an_op_runs_again_with_gradients_on_or_off_as_it_ran():
    """Some kernels look: the LSTM of oneDNN makes its workspace only while gradients are on."""
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((4,), 0.3))

        def forward(self, x):
            return torch.sigmoid(torch.exp(x * self.weight) + 1)

    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.exp.default:
                seen.append(torch.is_grad_enabled())
            return func(*args, **(kwargs or {}))

    plan = drops([[["aten::exp", 0], ["aten::add", 0], ["aten::sigmoid", 0]]], [(1, 0), (2, 0)])
    with Mode():
        learnt(torch, Net(), torch.full((4,), 0.1), plan)
    assert seen == [True, True]


def test_the_lstm_of_onednn_runs_once():
    torch = pytest.importorskip("torch", reason="needs torch")
    if not hasattr(torch.ops.aten, "mkldnn_rnn_layer"):
        pytest.skip("needs a torch with oneDNN's LSTM")
    assert draws(chance_of(torch.ops.aten.mkldnn_rnn_layer.default, torch), (), {})
