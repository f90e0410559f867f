"""What a process of either service stands on: time, log lines, metrics, and the broker.

Nothing here knows a service.
"""

from importlib.metadata import version

__version__ = version("ucci-stream")
