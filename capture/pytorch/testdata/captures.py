"""Capture CUDA graphs under a plan that an agent carries out: of a forward pass, of an optimizer's step and of a step as a whole. The plan ends with its reason, and what is
learnt, by replaying them as well, is what is learnt alone.

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
    """Train, one step of it by a graph, and return a digest of all that was learnt, and why the plan ended."""
    torch.manual_seed(3)
    net = waits.Net(None).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, capturable=True)
    graph, losses, x, why = torch.cuda.CUDAGraph(), [], torch.empty(waits.BATCH, waits.WIDTH, device="cuda"), ""
    for step in range(STEPS):
        x.copy_(torch.randn(waits.BATCH, waits.WIDTH))
        if agent is not None and step == CAPTURED - 2:
            agent.wishes.plans.append({"order": 0, "id": 1, "plan": plan, "keep": False})
        under = step == CAPTURED and agent is not None
        carrier = agent.manager.carrier if under else None
        assert not under or agent.manager.managed == 1 and agent.manager.happened[0] > 0, "there is no plan: %s" % (list(agent.outbox.notices),)
        optimizer.zero_grad()
        if step == CAPTURED and what == "whole":
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
        del loss  # what is left of it would have the graph wait for a stream that is not captured
        if under:
            why = carrier.why
    assert agent is None or not agent.guard.dead and agent.manager.managed == 0, "the plan has not ended: %s" % agent.guard.why
    return waits.digest(net, optimizer, losses), why


def main():
    space = {"__name__": "gmemtop_agent"}
    with open(sys.argv[1]) as f:
        exec(compile(f.read(), "gmemtop_agent", "exec"), space)
    plan, alone = waits.plan_of(space, waits.Net, None, True), {}
    kinds = "forward", "optimizer", "whole"
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
