"""The operator's command: everything that puts the system on a machine, feeds it and looks at it.

It may import both services; neither imports it.
"""
