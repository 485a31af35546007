"""What the agent does by itself in a program that was started under it."""

from __future__ import annotations


class Settings:
    """The one that counts is settings. Lines that set its fields follow the agent in the file that a
    launched program runs."""

    def __init__(self) -> None:
        self.first = 0  # steps that are described unasked
        self.depth = "ops"  # by what means windows are captured until a viewer says otherwise
        # types of devices on which what autograd saves waits on the host while there is no plan
        self.unplanned: tuple[str, ...] = ()


settings = Settings()
