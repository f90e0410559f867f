"""The operator's command: everything that puts the system on a machine, feeds it and looks at it.

It may import both services; neither imports it.
"""

from importlib.metadata import version

__version__ = version("ucci-stream")
