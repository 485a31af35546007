"""What the agent tells people: a code and the values that fill the gaps of its sentence.

The sentences are gmemtop's, in its package capture/say, so that all that people read is written in one place.
A viewer that does not know a code shows the text, which is the code and the values as they are.
"""

from __future__ import annotations

from typing import Any

# By code, the sentences with %s for gaps, where there is no viewer to know them: gmemtop fills this in in a
# file that carries a plan out by itself.
SENTENCES: dict[str, str] = {}


class Says(str):
    """A sentence. Values are strings, numbers and other sentences."""

    code: str
    values: tuple[Any, ...]

    def __new__(cls, code: str, *values: Any) -> Says:
        plain = code.replace("_", " ") + ": %s" * bool(values) + ", %s" * (len(values) - 1)
        said = str.__new__(cls, SENTENCES.get(code, plain) % values)
        said.code, said.values = code, values
        return said


class Refused(Exception):
    """What cannot be done, and why."""

    def __init__(self, why: str) -> None:
        Exception.__init__(self, why)
        self.why = why


def why_of(error: BaseException) -> str:
    """Describe an error to people: the sentence of one of ours, else its type and message."""
    return error.why if isinstance(error, Refused) else "%s: %s" % (type(error).__name__, error)


def told(text: str) -> dict[str, Any]:
    """A text as the wire has it: {} for one that is no sentence of ours."""
    if not isinstance(text, Says):
        return {}
    values = [told(v) if isinstance(v, Says) else v for v in text.values]
    return {"code": text.code, "values": values}
