"""Carries out the rules of one plan in a program of its own: no viewer, no agent.

`gmemtop plan --emit torch` writes this beside the plan's rules, which swap(), rerun() and backup() make.
Rules become the plan that Carrier reads: each tensor that waits on the host gets a place of its own there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from .carry import Carrier

if TYPE_CHECKING:
    from .kinds import Moved, Plan

PLACES = 512  # bytes to which places on the host are rounded up


def swap(size: int, *tensors: tuple[int, int, int]) -> Plan:
    """Saved tensors of `size` bytes that wait on the host: the number of each in the step, the number of the
    save at which it leaves, and of the load at which it is back."""
    return {
        "values": [
            {"save": s, "bytes": size, "how": "swap", "release": r, "fetch": f, "group": 0}
            for s, r, f in tensors
        ]
    }


def rerun(ops: dict[str, Sequence[int]], tensors: dict[int, Sequence[int]]) -> Plan:
    """Saved tensors that are dropped, by their bytes the numbers in the step, and the ops that run again when
    the first of them is needed: by name, the numbers of the calls in the step. A name without a namespace is
    one of aten."""
    dropped = {"how": "drop", "slot": 0, "release": 0, "fetch": 0}
    return {
        "values": [dict(dropped, save=s, bytes=size) for size, saves in tensors.items() for s in saves],
        "ops": _listed(ops),
    }


def backup(ops: dict[str, Sequence[int]]) -> Plan:
    """Ops, given as for rerun(), that run again only if the program has changed in place, outside of modules,
    what they made."""
    return {"backup": _listed(ops)}


def _listed(ops: dict[str, Sequence[int]]) -> list[tuple[str, int]]:
    return [(name if "::" in name else "aten::" + name, n) for name, calls in ops.items() for n in calls]


def planned(rules: Sequence[Plan], device: str, saves: int, trained: bool, copies: int = 0) -> Plan:
    """The plan of some rules for steps that save that many tensors."""
    values, groups, slab = [], [], 0
    for rule in rules:
        if "ops" in rule:
            groups.append(rule["ops"])
        for value in rule.get("values", ()):
            if value["how"] == "swap":
                value = dict(value, slot=slab)
                slab += -(-value["bytes"] // PLACES) * PLACES
            else:
                value = dict(value, group=len(groups) - 1)
            values.append(value)
    return {
        "version": 1,
        "device": device,
        "slab": slab,
        "saves": saves,
        "trained": trained,
        "values": values,
        "groups": groups,
        "backups": [rule["backup"] for rule in rules if "backup" in rule],
        "copies": copies,
    }


class Less(Carrier):
    """Carries out rules from one step of an optimizer to the next. `why` says why it ended, "" while it goes
    on; `moved` is what happened in the last step (see Carrier.next)."""

    def __init__(
        self,
        optimizer: Any,
        rules: Sequence[Plan],
        device: str,
        saves: int,
        trained: bool,
        copies: int = 0,
    ) -> None:
        import torch

        Carrier.__init__(self, torch, planned(rules, device, saves, trained, copies))
        self.moved: Moved = (0,) * 6
        self.begin()
        self.hook = optimizer.register_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.moved = self.next()
        if self.why:
            self.remove()

    def remove(self) -> None:
        """End the plan: from here on everything is kept in memory."""
        self.hook.remove()
        Carrier.remove(self)
