"""Laws of random numbers: they depend on the CUDA generator's seed and offset, and on nothing else."""

import torch
from torch import nn
from torch.nn import functional as F


from laws import differ, law, same

DRAWS = {
    "rand": lambda: torch.rand(100, device="cuda"),
    "randn": lambda: torch.randn(100, device="cuda"),
    "randint": lambda: torch.randint(1000, (100,), device="cuda"),
    "randperm": lambda: torch.randperm(100, device="cuda"),
    "dropout": lambda: F.dropout(torch.ones(100, device="cuda")),
    "bernoulli_": lambda: torch.empty(100, device="cuda").bernoulli_(0.5),
    "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.5, device="cuda")),
    "uniform_": lambda: torch.empty(100, device="cuda").uniform_(2, 3),
    "normal_": lambda: torch.empty(100, device="cuda").normal_(2, 3),
    "exponential_": lambda: torch.empty(100, device="cuda").exponential_(),
    "geometric_": lambda: torch.empty(100, device="cuda").geometric_(0.1),
    "cauchy_": lambda: torch.empty(100, device="cuda").cauchy_(),
    "log_normal_": lambda: torch.empty(100, device="cuda").log_normal_(),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device="cuda"), 20),
    "multinomial with replacement": lambda: torch.multinomial(torch.ones(100, device="cuda"), 20, True),
    "normal of tensors": lambda: torch.normal(
        torch.zeros(100, device="cuda"), torch.ones(100, device="cuda")
    ),
    "poisson": lambda: torch.poisson(torch.full((100,), 5.0, device="cuda")),
    "gamma": lambda: torch._standard_gamma(torch.full((100,), 2.0, device="cuda")),
    "rrelu": lambda: F.rrelu(-torch.ones(100, device="cuda"), training=True),
    "bfloat16": lambda: torch.rand(100, device="cuda", dtype=torch.bfloat16),
    "float16": lambda: torch.randn(100, device="cuda", dtype=torch.float16),
}


@law
def draws_depend_on_seed_and_offset():
    """The same seed and offset give the same numbers, another offset or seed gives others, and the offset
    moves."""
    generator = torch.cuda.default_generators[0]
    for name, draw in DRAWS.items():
        torch.cuda.manual_seed(5)
        a, offset = draw(), generator.get_offset()
        assert offset > 0 and offset % 4 == 0, f"{name}: the offset is {offset}"
        b = draw()
        torch.cuda.manual_seed(5)
        c = draw()
        torch.cuda.manual_seed(6)
        d = draw()
        same(a, c, name)
        for other in (b, d):
            assert not torch.equal(a, other), f"{name} draws the same again"


@law
def draws_with_a_generator_of_ones_own():
    """If a generator is passed, it is used and advanced."""
    g = torch.Generator("cuda")
    g.manual_seed(3)
    before = torch.cuda.default_generators[0].get_offset()
    a = torch.rand(50, device="cuda", generator=g)
    moved = g.get_offset()
    b = torch.rand(50, device="cuda", generator=g)
    assert moved > 0 and torch.cuda.default_generators[0].get_offset() == before
    differ(a, b)
    g.manual_seed(3)
    same(a, torch.rand(50, device="cuda", generator=g))


@law
def draws_look_like_their_distribution():
    """Means and standard deviations are those of the distribution."""
    torch.cuda.manual_seed(1)
    n = 20000
    for what, x, mean, deviation in (
        ("uniform", torch.rand(n, device="cuda"), 0.5, 12**-0.5),
        ("normal", torch.randn(n, device="cuda"), 0.0, 1.0),
        ("dropout", F.dropout(torch.ones(n, device="cuda"), 0.25), 1.0, (1 / 0.75 - 1) ** 0.5),
        ("exponential", torch.empty(n, device="cuda").exponential_(), 1.0, 1.0),
    ):
        assert abs(float(x.mean()) - mean) < 0.05 and abs(float(x.std()) - deviation) < 0.05, (
            what,
            float(x.mean()),
            float(x.std()),
        )


@law
def the_hosts_generator_is_left_alone():
    """Draws on the device do not advance the CPU's generator."""
    torch.manual_seed(9)
    state = torch.get_rng_state()
    for draw in DRAWS.values():
        draw()
    torch.cuda.synchronize()
    assert torch.equal(state, torch.get_rng_state())


def _dropping(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 4)).cuda()
    return model, torch.randn(8, 16, device="cuda", requires_grad=True)


@law
def a_recompute_that_restores_the_generator_is_equal():
    """torch.utils.checkpoint gives the gradients of a run without checkpoints if preserve_rng_state is set,
    and others if not.
    """
    from torch.utils.checkpoint import checkpoint

    def gradient(how):
        model, x = _dropping(4)
        torch.cuda.manual_seed(8)
        y = model(x) if how is None else checkpoint(model, x, use_reentrant=False, preserve_rng_state=how)
        y.square().sum().backward()
        return model[0].weight.grad

    plain = gradient(None)
    same(plain, gradient(True))
    differ(plain, gradient(False))
