"""The result of a comparison when nothing was computed.

A number that a script reads from the device is 1. Many scripts compare on the device and read only the
result: assert mask.max() < classes; if not isfinite(loss).all(): exit. Answering False would end them, so we
give the result that the comparison has if every number on the device is 1. If there is none, as for a mask of
random bits, it is False.
"""

import math
import operator

_COMPARED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "mul": lambda a, b: bool(a and b),  # isfinite() multiplies its two truths
}

# If all elements of a tensor are assumed to be the same, so are those of a copy or part of it.
_SAME = (
    "clone",
    "_to_copy",
    "copy",
    "view",
    "_unsafe_view",
    "expand",
    "squeeze",
    "unsqueeze",
    "select",
    "slice",
    "t",
)

_OF_ONE = {
    **dict.fromkeys(_SAME, bool),
    "logical_not": operator.not_,
    "bitwise_not": operator.not_,
    "any": bool,
    "all": bool,
    "_is_any_true": bool,
    "_is_all_true": bool,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
}


def truth_of(op, args, value):
    """The truth value that an op, such as eq or logical_and_, gives for its arguments. value returns the
    number or truth value assumed for an argument, None if there is none. None if nothing follows."""
    name = op.rstrip("_")
    rule, count = _COMPARED.get(name), 2
    if rule is None:
        rule, count = _OF_ONE.get(name), 1
    if rule is None or len(args) < count:
        return None
    values = [value(a) for a in args[:count]]
    if any(v is None for v in values):
        return None
    try:
        return bool(rule(*values))
    except TypeError:  # complex numbers have no order
        return None


def version_or_0(t):
    try:
        return t._version
    except RuntimeError:  # an inference tensor has no version counter
        return 0
