"""What the agent does by itself in a program that was started under it."""

from __future__ import annotations


class Settings:
    """Lines that set these fields follow the agent in the file that a launched program runs. They belong to
    the class, since an object of ours would outlive the agent's end."""

    first = 0  # steps that are described unasked
    depth = "ops"  # how windows are captured until a viewer says otherwise
    # types of devices on which what autograd saves waits on the host while there is no plan
    unplanned: tuple[str, ...] = ()


settings = Settings
