"""What the agent tells people: a code, and the values that fill the gaps of its sentence.

The sentences themselves are in gmemtop's package capture/say, so that everything people read is in one place.
A viewer that does not know a code shows the plain text: the code and the values.
"""

from __future__ import annotations

from typing import Any

# The sentences by code, with %s for gaps, for use without a viewer: gmemtop fills this in when it writes a
# file that runs a plan by itself.
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
    """Raised when something cannot be done; says why."""

    def __init__(self, why: str) -> None:
        Exception.__init__(self, why)
        self.why = why


def why_of(error: BaseException) -> str:
    """Describe an error to people: our sentence if it is a Refused, else its type and message."""
    if isinstance(error, Refused):
        return error.why
    name = type(error).__name__
    try:
        return "%s: %s" % (name, error)
    except Exception:  # from the error's own __str__; the caller still has to clean up
        return name


def told(text: str) -> dict[str, Any]:
    """A text in its form on the wire, {} unless it is a Says."""
    if not isinstance(text, Says):
        return {}
    values = [told(v) if isinstance(v, Says) else v for v in text.values]
    return {"code": text.code, "values": values}
