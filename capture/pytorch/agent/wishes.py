"""What viewers want of the agent.

The sending thread writes it down, and the training thread takes it up where a step ends.
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
        self.leaving = False  # the agent is to go
        self.want: collections.deque[Wish] = collections.deque(maxlen=100)  # windows
        # windows that begin where a certain step does
        self.later: collections.deque[tuple[int, Wish]] = collections.deque(maxlen=100)
        self.every = 0  # one step in so many is captured, 0 for none
        self.how = settings.depth  # by which means, where a wish names none
        # an order to carry out a plan or none: the newest counts
        self.plans: collections.deque[dict[str, Any]] = collections.deque(maxlen=1)
        self.newest = 0  # the number of the newest plan, 0 for none
        self.stays = True  # keep the newest plan when its viewer has gone
        self.abandoned = False  # the viewer who ordered the newest plan has gone, so it must end

    def wake(self) -> None:
        """Have the agent look at what is wanted where the current step ends."""
        self.tally.wake()

    def due(self, index: int) -> None:
        """Step index begins: what was asked for from this step on is wanted now, and so is what came too
        late for its own step."""
        for _ in range(len(self.later)):
            try:
                first, wish = self.later.popleft()  # which the sending thread may empty meanwhile
            except IndexError:
                return
            if first <= index:
                self.want.append(wish)
            else:
                self.later.append((first, wish))

    def asked(self) -> Wish | None:
        """What is to be captured now: all at once that was asked for by the means of the first who asked;
        None where nothing is."""
        first: Wish | None = None
        others: list[Wish] = []
        while True:
            try:
                # which the sending thread may empty meanwhile
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
        """Take up the newest order to carry out a plan or none; None where there is none."""
        try:
            return self.plans.popleft()  # which the sending thread may replace meanwhile
        except IndexError:
            return None

    def carry(self, order: int, number: int, plan: Any, keep: bool, stays: bool) -> None:
        """Have a plan carried out, or none, from the next step on."""
        self.stays, self.abandoned = stays or not plan, False
        self.newest = number if plan else 0
        self.plans.append({"order": order, "id": number, "plan": plan, "keep": keep})

    def viewer_left(self) -> None:
        """No viewer is left to take windows or to judge a plan, so the plan ends unless it is to stay."""
        self.every = 0
        self.want.clear()
        self.later.clear()
        if not self.stays:
            self.carry(0, 0, None, False, False)
            self.abandoned = True
            self.wake()
