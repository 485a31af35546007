"""The agent around a step's end, without torch."""

import collections
from types import SimpleNamespace

from agent import wire
from agent.agent import Agent


def waiting(device, *wishes):
    """An agent that was asked for windows, in a program whose parameters are on a device."""
    agent = Agent.__new__(Agent)
    agent.torch = SimpleNamespace(_C=SimpleNamespace(_len_torch_dispatch_stack=lambda: 0))
    agent.unfinished, agent.window, agent.every, agent.how = None, None, 0, "ops"
    agent.ready, agent.notices, agent.answers = collections.deque(), collections.deque(), collections.deque()
    agent.addresses = SimpleNamespace(look_again=1)
    agent.want = collections.deque(wishes)
    agent._of_parameters = lambda: device
    return agent


def test_saves_that_no_plan_can_follow_are_refused_and_disarm_nothing():
    agent = waiting(SimpleNamespace(type="xpu"), ("ops", 2, True, "", [5]))
    agent._open(0)
    (answer,) = agent.answers
    assert (answer["order"], answer["state"], answer["reason"]) == (5, wire.REFUSED, "not_captured")
    assert agent.window is None


def test_wishes_for_the_same_means_become_one():
    wishes = [("ops", 1, False, "", [1]), ("history", 1, False, "", [2]), ("ops", 3, True, "", [3])]
    agent = waiting(None, *wishes)
    assert agent._asked() == ("ops", 3, True, "", [1, 3])
    assert list(agent.want) == [wishes[1]]
    assert agent._asked() == wishes[1]
    assert agent._asked() is None
