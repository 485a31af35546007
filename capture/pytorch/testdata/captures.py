"""Capture CUDA graphs while an agent carries out a plan: of a forward pass, of a backward pass as a whole and
from its middle on, of an optimizer's step and of a whole step. The plan ends with its reason, the graphs
contain none of its copies, and training learns the same as without the agent, also when it replays the
graphs.

usage: captures.py AGENT.py
"""
import os
import shutil
import sys
import tempfile
import threading
import time

import torch
import waits

STEPS, CAPTURED = 8, 4


def train(what, agent, plan):
    """Train, with one step by a graph. Return a digest of all that was learnt, and why the plan ended."""
    torch.manual_seed(3)
    net = waits.Net(None).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, capturable=True)
    graph, losses, why = torch.cuda.CUDAGraph(), [], ""
    x = torch.empty(waits.BATCH, waits.WIDTH, device="cuda")
    middle = []
    if what in ("backward", "rest"):
        net.norm.register_forward_hook(lambda module, inputs, out: middle.append(out))
    for step in range(STEPS):
        x.copy_(torch.randn(waits.BATCH, waits.WIDTH))
        if agent is not None and step == CAPTURED - 2:
            agent.wishes.plans.append({"order": 0, "id": 1, "plan": plan, "keep": False})
        under = step == CAPTURED and agent is not None
        carrier = agent.manager.carrier if under else None
        if under:
            notices = list(agent.outbox.notices)
            manager = agent.manager
            assert manager.managed == 1 and manager.happened[0] > 0, "there is no plan: %s" % (notices,)
        optimizer.zero_grad()
        middle.clear()
        if what in ("backward", "rest"):
            loss = waits.loss_of(net, x, losses)
            if step == CAPTURED:
                backward(what, net, loss, middle[0], graph, carrier)
            else:
                loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        elif step == CAPTURED and what == "whole":
            with torch.cuda.graph(graph):
                loss = waits.loss_of(net, x, losses)
                loss.backward()
                optimizer.step()
            graph.replay()
            losses.append(loss.detach().clone())
        else:
            if step == CAPTURED and what == "forward":
                with torch.cuda.graph(graph):
                    loss = waits.loss_of(net, x, losses)
                graph.replay()
                losses.append(loss.detach().clone())
            loss = waits.loss_of(net, x, losses)
            loss.backward()
            if step == CAPTURED and what == "optimizer":
                with torch.cuda.graph(graph):
                    optimizer.step()
                graph.replay()
            else:
                optimizer.step()
            losses.append(loss.detach())
        del loss  # otherwise the graph would wait for a stream that is not captured
        if under:
            why = carrier.why
    if agent is not None:
        ended = not agent.guard.dead and agent.manager.managed == 0
        assert ended, "the plan has not ended: %s" % agent.guard.why
    return waits.digest(net, optimizer, losses), why


def backward(what, net, loss, middle, graph, carrier):
    """Capture the backward pass, or the rest of it, after a forward pass that was not captured, and leave the
    gradients in the parameters. A plan's copies must not be part of the graph."""

    def moved():
        return carrier and (carrier.now.back, carrier.now.again, len(carrier.same.compared))

    params = list(net.parameters())
    early = [p for m in net.layers[:2] for p in m.parameters()] + list(net.norm.parameters())
    late = [p for p in params if not any(p is q for q in early)]
    if what == "rest":
        middle_grad, *grads = torch.autograd.grad(loss, [middle] + late)
        for p, g in zip(late, grads):
            p.grad = g
        graph.capture_begin()  # the program's own graph, on the stream that it trains on
    else:
        captured = torch.cuda.graph(graph, stream=torch.cuda.current_stream())
        captured.__enter__()
    before = moved()
    if what == "rest":
        grads = torch.autograd.grad(middle, early, middle_grad)
    else:
        grads = torch.autograd.grad(loss, params)
    assert moved() == before, "the graph contains the plan's copies"
    if what == "rest":
        graph.capture_end()
    else:
        captured.__exit__(None, None, None)
    graph.replay()
    for p, g in zip(early if what == "rest" else params, grads):
        p.grad = g


def main():
    torch.cuda.set_stream(torch.cuda.Stream())  # the default stream cannot be captured
    space = {"__name__": "gmemtop_agent"}
    with open(sys.argv[1]) as f:
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    plan, alone = waits.plan_of(space, waits.Net, None, True), {}
    kinds = "forward", "backward", "rest", "optimizer", "whole"
    for what in kinds:
        alone[what], _ = train(what, None, None)
    folder = tempfile.mkdtemp()
    agent = space["Agent"](os.path.join(folder, "x.sock"), False)
    agent.attach()
    for what in kinds:
        learnt, why = train(what, agent, plan)
        print("%s: %s: %s" % (what, "the same" if learnt == alone[what] else "another", why), flush=True)
    agent.wishes.leaving = True
    agent.bell.ring()
    late = time.monotonic() + 60
    while any(t.name == "gmemtop" for t in threading.enumerate()):
        assert time.monotonic() < late, "the agent has not gone"
        train("", None, None)
    shutil.rmtree(folder)


main()
