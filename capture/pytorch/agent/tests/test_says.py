"""What the agent tells people has a code, in whatever frame it is sent."""

from types import SimpleNamespace

import pytest

import agent.windows
from agent.guard import Guard
from agent.outbox import Outbox
from agent.says import Refused, Says, told, why_of
from agent.windows import Windows


@pytest.mark.parametrize(
    "error, text, code",
    [
        (Refused(Says("copies_untimed")), "copies untimed", "copies_untimed"),
        (ValueError("the program's own"), "ValueError: the program's own", None),
    ],
)
def test_an_error_is_told_by_its_code_if_it_is_ours(monkeypatch, error, text, code):
    def fails(*_):
        raise error

    monkeypatch.setattr(agent.windows, "carrying_costs", fails)
    monkeypatch.setattr(agent.windows, "compiled_graphs", lambda: 0)
    windows = Windows.__new__(Windows)
    windows.torch, windows.outbox = None, Outbox()
    windows.optimizers = SimpleNamespace(device=lambda: SimpleNamespace(type="cpu"))
    assert windows._costs(SimpleNamespace(watched=True, rows=SimpleNamespace(list=[]))) == {}
    [(_, notice)] = windows.outbox.notices
    assert notice["says"] == {"code": "costs_unknown", "values": [told(error.why) if code else text]}
    assert notice["text"] == "costs unknown: " + text
    assert told(why_of(error)).get("code") == code


def test_the_last_word_has_the_code_of_what_stopped_the_agent():
    from agent.agent import Agent

    stopped = Agent.__new__(Agent)
    stopped.guard, stopped.outbox, stopped.exit, stopped.left = Guard(), Outbox(), None, []
    stopped.wishes, words = SimpleNamespace(leaving=False), []
    stopped.sender = SimpleNamespace(last_word=lambda end, _: words.append(end))
    stopped.guard.caught(Refused(Says("torch_import_failed")))
    stopped._last_word()
    ours = {"code": "torch_import_failed", "values": []}
    assert words == [{"reason": "disarmed", "detail": "torch import failed", "says": ours}]
    assert stopped.outbox.notices[0][1]["says"] == {"code": "agent_failed", "values": [ours]}
