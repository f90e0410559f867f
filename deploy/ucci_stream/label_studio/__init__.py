"""Label Studio attached: label requests out as tasks, annotations back as feedback, nothing lost between.

``project`` sets up what annotators work in, ``labeling`` says how a workload looks there, ``client`` talks to the
server, ``told`` knows what came back already, ``reconcile`` decides what is still to do, and ``sync`` does it.
"""
