"""Checks that all messages for people are in gmemtop's catalogue: the agent itself has only codes."""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import agent.windows
from agent.guard import Guard
from agent.lines import lines
from agent.outbox import Outbox
from agent.says import Refused, Says, told, why_of
from agent.tally import Tally
from agent.windows import Windows

SENTENCE = re.compile(r"[a-z]{2,} [a-z]{2,}")

# Texts that are not sent to a viewer, and where they go instead.
OTHERS = {
    "one of the variables needed for gradient": "torch's own words for an error of the program's",
    "gmemtop: a tensor that was dropped cannot": "an exception in the program, which nobody may be watching",
    "gmemtop looks": "torch's reason against hooks, for as long as it is asked whether it has one",
    "the viewer has gone": "ends the connection",
    "a frame of %d bytes": "ends the connection",
    "%s takes more than 64 bits": "ends the connection",
    "the plan is not a JSON object": "ends the connection",
}


def texts(tree):
    """The strings of a module that are not documentation."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def test_the_agent_has_no_sentences_of_its_own():
    said, unused = [], set(OTHERS)
    for module in sorted(Path(agent.windows.__file__).parent.glob("*.py")):
        for text in texts(ast.parse(module.read_text())):
            known = [begin for begin in OTHERS if text.startswith(begin)]
            unused.difference_update(known)
            if SENTENCE.search(text) and not known:
                said.append((module.name, text))
    assert (said, unused) == ([], set())


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
    windows.torch, windows.outbox = None, Outbox(Tally(None))
    windows.optimizers = SimpleNamespace(device=lambda: SimpleNamespace(type="cpu"))
    assert windows._facts(SimpleNamespace(watched=True, evaluates=False, rows=SimpleNamespace(list=[]))) == {
        "evaluates": False
    }
    [(_, notice)] = windows.outbox.notices
    assert notice["says"] == {"code": "costs_unknown", "values": [told(error.why) if code else text]}
    assert notice["text"] == "costs unknown: " + text
    assert told(why_of(error)).get("code") == code


def test_the_last_word_has_the_code_of_what_stopped_the_agent():
    from agent.agent import Agent

    stopped = Agent.__new__(Agent)
    stopped.guard, stopped.outbox, stopped.exit, stopped.left = Guard(), Outbox(Tally(None)), None, []
    stopped.ending = False
    stopped.wishes, words = SimpleNamespace(leaving=False), []
    stopped.sender = SimpleNamespace(last_word=lambda end, _: words.append(end))
    stopped.guard.caught(Refused(Says("torch_import_failed")))
    stopped._last_word()
    ours = {"code": "torch_import_failed", "values": []}
    assert words == [{"reason": "disarmed", "detail": "torch import failed", "says": ours}]
    assert stopped.outbox.notices[0][1]["says"] == {"code": "agent_failed", "values": [ours]}


def window_of(labels):
    """The lines of a window of three storages."""
    storages = SimpleNamespace(
        torch=SimpleNamespace(__version__="2"),
        device="cpu",
        where={0: "cpu", 1: "cpu", 2: "cpu"},
        before=[("a", 0, 8, 0, 64)],
        untouched=lambda: None,
    )
    rows = SimpleNamespace(
        start=0,
        at=lambda t: t,
        device_times=lambda steps: steps,
        list=[("a", 1, 8, 5, 128), ("a", 2, 8, 5, 192)],
    )
    uses = SimpleNamespace(label=labels.get, category=lambda _: "unknown")
    text = "".join(lines({"epoch_ns": 0}, [], rows, storages, uses))
    return [json.loads(line) for line in text.splitlines()]


def test_a_window_has_the_codes_of_its_labels():
    _, *rows = window_of({0: "layers.0.weight", 1: Says("workspace", "aten::mm")})
    assert [(row.get("label"), row.get("says")) for row in rows] == [
        ("layers.0.weight", None),
        ("workspace: aten::mm", {"code": "workspace", "values": ["aten::mm"]}),
        (None, None),
    ]


@pytest.mark.parametrize(
    "rank, want", [("3", 3), ("", -1), ("-1", -1), ("first", -1), ("\u00b2", -1), (None, -1)]
)
def test_a_rank_that_is_no_number_is_unknown(monkeypatch, rank, want):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert window_of({})[0]["rank"] == want
