"""What the agent does unasked in a program that was launched with it."""

from __future__ import annotations


class Settings:
    """In the file that a launched program runs, lines after the agent set these fields. They are set on the
    class, since an instance would outlive the agent."""

    first = 0  # steps to describe unasked
    depth = "ops"  # how to capture windows until a viewer says otherwise
    # device types whose saved tensors wait on the host while there is no plan
    unplanned: tuple[str, ...] = ()


settings = Settings
