"""The agent: the part of gmemtop that runs inside a training process.

arrive.py is the entry point: attach() starts in a running process, Agent.launch() in one that has just
imported torch. An Agent is told of each step. Each of its parts is given the other parts that it needs:

    Steps            finds where a step ends
    Outbox, Wishes   what is to be sent, and what viewers want: all that the two threads exchange
    Sender, Link     talk to the viewer on their own thread
    Totals           the figures of a step
    Windows          opens and closes windows; Ops and Recorded capture steps, each in its own way
    Manager          runs plans, with a Carrier or a pool

alone.py is another entry point: a program that carries out a plan by itself has a Carrier and nothing else.

It must run on Python 3.8 to 3.14 and torch 2.2 to 2.15, and imports nothing but the standard library and
torch. In a training process it is a single file and not a module: agent.go joins the modules. So imports
between them must be at the top of a module, in the form `from .wire import VERSION`, without renaming.
"""
