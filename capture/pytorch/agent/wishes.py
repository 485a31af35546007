"""What viewers want from the agent.

The sending thread writes it down, and the training thread picks it up at the end of a step.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from .settings import settings
from .tally import Tally

if TYPE_CHECKING:
    from .kinds import Wish


class Wishes:
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.leaving = False  # the agent must leave
        self.want: collections.deque[Wish] = collections.deque(maxlen=100)  # windows
        # windows that begin at a given step
        self.later: collections.deque[tuple[int, Wish]] = collections.deque(maxlen=100)
        self.every = 0  # capture one step in this many, 0 for none
        self.how = settings.depth  # how to capture, if a wish does not say
        # an order to run a plan, or to run none: the newest counts
        self.plans: collections.deque[dict[str, Any]] = collections.deque(maxlen=1)
        self.newest = 0  # the number of the newest plan, 0 for none
        self.stays = True  # the newest plan stays on when its viewer leaves
        self.abandoned = False  # the viewer who ordered the newest plan has gone, so it must end

    def wake(self) -> None:
        """Make the agent look at what is wanted when the current step ends."""
        self.tally.wake()

    def due(self, index: int) -> None:
        """Step index begins. Windows asked for at this step are wanted now, and so are those whose request
        came too late for their step."""
        for _ in range(len(self.later)):
            try:
                first, wish = self.later.popleft()  # the sending thread may empty it meanwhile
            except IndexError:
                return
            if first <= index:
                self.want.append(wish)
            else:
                self.later.append((first, wish))

    def asked(self) -> Wish | None:
        """What to capture now, None for nothing. Merges all wishes that are captured in the same way as the
        first; the others wait."""
        first: Wish | None = None
        others: list[Wish] = []
        while True:
            try:
                # the sending thread may empty it meanwhile
                how, steps, saves, library, orders = self.want.popleft()
            except IndexError:
                self.want.extend(others)
                return first
            if first is None:
                first = how, steps, saves, library, orders
            elif first[0] == how and first[3] == library:
                first = how, max(steps, first[1]), saves or first[2], library, first[4] + orders
            else:
                others.append((how, steps, saves, library, orders))

    def ordered(self) -> dict[str, Any] | None:
        """Take the newest order about a plan; None if there is none."""
        try:
            return self.plans.popleft()  # the sending thread may replace it meanwhile
        except IndexError:
            return None

    def carry(self, order: int, number: int, plan: Any, keep: bool, stays: bool) -> None:
        """Run a plan, or none, from the next step on."""
        self.stays, self.abandoned = stays or not plan, False
        self.newest = number if plan else 0
        self.plans.append({"order": order, "id": number, "plan": plan, "keep": keep})

    def viewer_left(self) -> None:
        """No viewer is left to take windows or to judge a plan. The plan ends unless ordered to stay."""
        self.every = 0
        self.want.clear()
        self.later.clear()
        if not self.stays:
            self.carry(0, 0, None, False, False)
            self.abandoned = True
            self.wake()
