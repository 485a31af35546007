# Begins an agent in a running process: source is the agent's, path the viewer's socket.
#
# The functions and classes of an agent that has left refer to each other, so they stay until Python's garbage
# collector frees them, which in a training may take hours. They serve the next agent of the same source.
# Nothing is defined here: a function would keep these names, and they would keep the function.
names = None
for kind in object.__subclasses__():
    if type.__getattribute__(kind, "__name__") == "Agent" and kind.__module__ == __name__:
        if kind.__init__.__globals__.get("__source__") == hash(source):
            names = kind.__init__.__globals__
if names is None:
    file = globals().get("__file__", __name__)
    names = {"__name__": __name__, "__file__": file, "__source__": hash(source)}
    exec(compile(source, file, "exec", 0, True), names)
names["attach"](path)
