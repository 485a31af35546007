"""What whoever starts a program under the agent has it do by itself."""


class Settings(object):
    """The one that counts is settings. Lines that set its fields follow the agent in the file that a
    launched program runs."""

    def __init__(self):
        self.first = 0  # steps that are described unasked
        self.depth = "ops"  # by what means windows are captured until a viewer says otherwise
        # types of devices on which what autograd saves waits on the host while there is no plan
        self.unplanned = ()


settings = Settings()
