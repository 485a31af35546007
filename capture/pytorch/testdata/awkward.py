"""Train in ways that a plan could disturb, and print what was learnt to the last bit.

usage: awkward.py SCENARIO@STEPS[,SCENARIO@STEPS...]

Anything that varies from step to step depends on the step alone, so that training with and without plans can
be compared.
"""
import io
import os
import sys
import threading
import time

import train
import torch
from torch.nn import functional as F


def steps(name, model, batch, learn, optimizer=None):
    """learn takes a step's loss and number, and fills gradients; it returns False if the optimizer must not
    step."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(train.STEPS):
        train.gate(name, step)
        optimizer.zero_grad(set_to_none=True)
        loss = learn(model, batch(step), step)
        if loss is not None:
            optimizer.step()
            losses.append(loss.item())
    train.say(name, losses, [optimizer], buffers=model.buffers())


def plain(model, batch, step):
    loss = model(*batch)
    loss.backward()
    return loss


def gpt():
    return train.Loss(train.GPT())


def twice(name):
    """Keeps the graph and runs backward twice."""

    def learn(model, batch, step):
        loss = model(*batch)
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    steps(name, gpt(), lambda step: train.tokens(), learn)


def penalty(name):
    """The gradient's norm is part of the loss: backward runs through backward."""

    def learn(model, batch, step):
        loss = model(*batch)
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        loss = loss + 0.01 * sum(g.square().sum() for g in grads)
        loss.backward()
        return loss

    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256),
                              torch.nn.Tanh(), torch.nn.Linear(256, 10))
    steps(name, train.Loss(net), lambda step: (torch.randn(256, 64), torch.randint(0, 10, (256,))), learn)


def varied(name):
    """The batch has a different size in one step out of seven."""

    def batch(step):
        x, y = train.tokens()
        return (x[:2], y[:2]) if step % 7 == 3 else (x, y)

    steps(name, gpt(), batch, plain)


def trips(name):
    """Raises in the middle of the backward pass, and goes on."""

    def learn(model, batch, step):
        def trip(grad):
            raise ArithmeticError("not a number")

        hook = model.net.blocks[0].n1.weight.register_hook(trip) if step % 5 == 4 else None
        loss = model(*batch)
        try:
            loss.backward()
        except ArithmeticError:
            return None
        finally:
            if hook is not None:
                hook.remove()
        return loss

    steps(name, gpt(), lambda step: train.tokens(), learn)


def stops(name):
    """Gets Ctrl-C in the middle of the forward pass, and goes on."""
    model = gpt()

    def stop(module, inputs):
        if model.step % 9 == 8:
            raise KeyboardInterrupt

    model.net.blocks[1].register_forward_pre_hook(stop)

    def learn(model, batch, step):
        model.step = step
        try:
            return plain(model, batch, step)
        except KeyboardInterrupt:
            return None

    steps(name, model, lambda step: train.tokens(), learn)


def hooked(name):
    """Has its own hooks on saved tensors inside a module."""

    class Offloaded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = train.Block(32)

        def forward(self, x):
            with torch.autograd.graph.save_on_cpu():
                return self.inner(x)

    model = gpt()
    model.net.blocks.insert(1, Offloaded())
    steps(name, model, lambda step: train.tokens(), plain)


def wrapped(name):
    """Has its own hooks on saved tensors around the steps of its second half. They keep less than was saved,
    so that something else comes back."""

    def pack(t):
        return t.to(torch.bfloat16) if t.dtype == torch.float32 else t

    def unpack(t):
        return t.to(torch.float32) if t.dtype == torch.bfloat16 else t

    def learn(model, batch, step):
        if step < train.STEPS // 2:
            return plain(model, batch, step)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = model(*batch)
        loss.backward()
        return loss

    steps(name, gpt(), lambda step: train.tokens(), learn)


def compiles(name):
    """Compiles its network in its second half."""
    model = gpt()
    compiled = torch.compile(model, backend="eager")

    def learn(model, batch, step):
        return plain(model if step < train.STEPS // 2 else compiled, batch, step)

    steps(name, model, lambda step: train.tokens(), learn)


def effects(name):
    """Has its own autograd function, which counts its forward and backward passes; the counts affect
    training."""

    class Counting(torch.autograd.Function):
        forwards = backwards = 0

        @staticmethod
        def forward(ctx, x):
            Counting.forwards += 1
            y = torch.tanh(x * (1 + 1e-3 * Counting.forwards))
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            Counting.backwards += 1
            (y,) = ctx.saved_tensors
            return grad * (1 - y * y) * (1 + 1e-3 * Counting.backwards)

    class Counted(torch.nn.Module):
        def forward(self, x):
            return Counting.apply(x)

    net = torch.nn.Sequential(torch.nn.Linear(64, 256), Counted(), torch.nn.Linear(256, 256), torch.nn.GELU(),
                              torch.nn.Linear(256, 256), Counted(), torch.nn.Linear(256, 10))

    def learn(model, batch, step):
        loss = plain(model, batch, step)
        ran = Counting.forwards, Counting.backwards
        assert ran == (2 * step + 2, 2 * step + 2), "step %d: %d, %d" % (step, *ran)
        return loss

    steps(name, train.Loss(net), lambda step: (torch.randn(256, 64), torch.randint(0, 10, (256,))), learn)


def mixed(name):
    """Saves tensors that are not plain ones with memory of their own: a sparse gradient's, a subclass's,
    views of one storage, an expanded one, some of a few bytes."""

    class Named(torch.Tensor):
        pass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.EmbeddingBag(1000, 64, mode="sum", sparse=True)
            self.inner = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                                             torch.nn.Linear(256, 256))
            self.head, self.scale = torch.nn.Linear(128, 10), torch.nn.Parameter(torch.ones(()))

        def forward(self, x, y):
            h = self.inner(self.embed(x))
            a, b = h.chunk(2, 1)  # of one storage
            h = torch.sigmoid(a) * torch.tanh(b) * self.scale.expand(128)
            h = h * h.mean().exp()  # a single number
            h = F.relu(h.t().contiguous().t(), inplace=True)
            return F.cross_entropy(self.head(h.as_subclass(Named)).as_subclass(torch.Tensor), y)

    net = Net()
    steps(name, net, lambda step: (torch.randint(0, 1000, (256, 5)), torch.randint(0, 10, (256,))), plain,
          torch.optim.SGD(net.parameters(), lr=0.1))


def maps(name):
    """Uses torch.func inside a module, in one step out of five, and next to its backward pass."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(),
                                             torch.nn.Linear(256, 256), torch.nn.Tanh(),
                                             torch.nn.Linear(256, 10))
            self.step = 0

        def forward(self, x, y):
            out = self.inner(x)
            loss = F.cross_entropy(out, y)
            if self.step % 5 == 4:
                slope = torch.func.grad(lambda z: (z * z).sum())(out.detach())
                loss = loss + 0.01 * slope.mean() + 0.01 * torch.func.vmap(lambda z: z.sum())(out).mean()
            return loss

    def learn(model, batch, step):
        model.step = step
        return plain(model, batch, step)

    steps(name, Net(), lambda step: (torch.randn(256, 64), torch.randint(0, 10, (256,))), learn)


def starves(name):
    """Runs out of memory in the forward pass of one step in ten and in the backward pass of another, and goes
    on."""
    model, want = gpt(), 1 << 60

    def starve(module, inputs):
        if model.step % 10 == 3:
            torch.empty(want)

    model.net.blocks[1].register_forward_pre_hook(starve)

    def learn(model, batch, step):
        model.step = step
        weight = model.net.blocks[0].n1.weight
        hook = weight.register_hook(lambda grad: torch.empty(want)) if step % 10 == 8 else None
        try:
            loss = model(*batch)
            loss.backward()
        except RuntimeError as e:
            assert "memory" in str(e), e
            return None
        finally:
            if hook is not None:
                hook.remove()
        return loss

    steps(name, model, lambda step: train.tokens(), learn)


def busy(name):
    """Does what trainings do beside training: a worker loads the data, checkpoints are saved, a forked child
    runs the model, evaluations build a graph, and a second optimizer joins halfway."""
    model, late = gpt(), torch.nn.Linear(32, 32)
    torch.manual_seed(5)
    data = torch.utils.data.DataLoader([train.tokens() for _ in range(8)], batch_size=None, num_workers=1,
                                       persistent_workers=True)
    batches = iter(data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    second = []

    def batch(step):
        nonlocal batches
        if step and step % 8 == 0:
            batches = iter(data)
        return next(batches)

    def learn(model, batch, step):
        if step % 10 == 3:
            torch.save([model.state_dict(), optimizer.state_dict()], io.BytesIO())
        if step % 20 == 7:
            child = os.fork()
            if child == 0:
                model(*batch)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        if step % 6 == 5:
            model.eval()
            model(*batch).item()
            model.train()
        loss = plain(model, batch, step)
        if step >= train.STEPS // 2:
            second[:] = second or [torch.optim.SGD(late.parameters(), lr=0.1)]
            late(torch.ones(4, 32)).square().sum().backward()
            second[0].step()
            second[0].zero_grad()
        return loss

    steps(name, model, batch, learn, optimizer)


def byhand(name):
    """Trains with an optimizer of its own."""
    model = gpt()
    steps(name, model, lambda step: train.tokens(), plain, train.ByHand(model.parameters()))


def skips(name):
    """Leaves out one of its layers in most steps, as layer drop does."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))
            self.step = 0

        def forward(self, x, y):
            h = self.first(x)
            for i, layer in enumerate(self.layers):
                if self.step % 6 != i:
                    h = layer(F.gelu(h + 1)).tanh()
            return F.cross_entropy(self.last(torch.sigmoid(h)), y)

    def learn(model, batch, step):
        model.step = 5 if step < 40 else step  # it is described while all layers run
        return plain(model, batch, step)

    steps(name, Net(), lambda step: (torch.randn(256, 64), torch.randint(0, 10, (256,))), learn)


def looks(name):
    """Validates now and then, between two steps and in the middle of one."""

    def learn(model, batch, step):
        with torch.no_grad():
            if step % 4 == 1:
                model(*batch)
        return plain(model, batch, step)

    steps(name, gpt(), lambda step: train.tokens(), learn)


def changed(name):
    """Changes a tensor that autograd saved, in one step out of five: torch refuses the backward pass, and
    must also do so under a plan."""

    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.wrong = torch.nn.Linear(64, 256), torch.nn.Linear(256, 10), False

        def forward(self, x, y):
            h = torch.sigmoid(self.a(x))
            out = self.b(h)
            if self.wrong:
                h.add_(1)
            return F.cross_entropy(out, y)

    def learn(model, batch, step):
        model.wrong = step % 5 == 4
        loss = model(*batch)
        try:
            loss.backward()
            refused = False
        except RuntimeError as e:
            refused = "modified by an inplace operation" in str(e)
        assert refused == model.wrong, "step %d: refused is %s" % (step, refused)
        return None if refused else loss

    steps(name, Changing(), lambda step: (torch.randn(256, 64), torch.randint(0, 10, (256,))), learn)


def beside(name):
    """Another thread trains another network at the same time, and is in its backward pass most of the
    time."""
    # Draws no random numbers, which the first one would miss.
    other, stop = train.Loss(train.GPT()).eval(), []

    def linger(gradient):
        time.sleep(0.005)  # which keeps the thread in its backward pass

    def run():
        while not stop:
            loss = other(torch.arange(32).view(2, 16), torch.arange(32).view(2, 16))
            loss.register_hook(linger)
            loss.backward()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        steps(name, gpt(), lambda step: train.tokens(), plain)
    finally:
        stop.append(True)
        thread.join()


def grows(name):
    """Trains with larger batches in its second half."""
    net = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.GELU(), torch.nn.Linear(96, 96),
                              torch.nn.GELU(), torch.nn.Linear(96, 10))

    def batch(step):
        n = 256 if step < train.STEPS // 2 else 448
        return torch.randn(n, 32), torch.randint(0, 10, (n,))

    steps(name, train.Loss(net), batch, plain)


def wobbles(name):
    """Has a sigmoid whose last bits differ each time, like those of sums in no fixed order."""
    ran = []

    def sigmoid(x):
        ran.append(None)
        return torch.empty_like(x).copy_(1 / (1 + torch.exp(-x))) + 1e-6 * (len(ran) % 7)

    library = torch.library.Library("aten", "IMPL")
    library.impl("sigmoid", sigmoid, "CPU")
    net = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.Sigmoid(), torch.nn.Linear(96, 96),
                              torch.nn.Sigmoid(), torch.nn.Linear(96, 10))
    steps(name, train.Loss(net), lambda step: (torch.randn(2048, 32), torch.randint(0, 10, (2048,))), plain)


if __name__ == "__main__":
    for chosen in sys.argv[1].split(","):
        torch.manual_seed(1)
        train.STEPS = int(chosen.partition("@")[2])
        globals()[chosen.partition("@")[0]](chosen)
