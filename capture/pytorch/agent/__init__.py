"""The agent: what gmemtop runs inside of a training process.

arrive.py is the entry: attach() begins in a running process, Agent.launch() in one that has just imported
torch. An Agent hears of each step and has parts, each of which is given the others that it needs:

    Steps            where a step ends
    Outbox, Wishes   what is to be sent, what viewers want: all that the two threads hand to each other
    Sender, Link     talk to the viewer, on a thread of their own
    Totals           the figures of a step
    Windows          opens and closes windows; Ops and Recorded capture steps, each in its own way
    Manager          has plans carried out, by a Carrier or a pool

It must run on Python 3.8 to 3.14 and torch 2.2 to 2.15, and imports nothing but the standard library and
torch. In a training process it is one file without a module of its own: agent.go puts the modules together,
so imports between them name what they want (from .wire import VERSION), stand at the top of a module and use
no other name.
"""
