"""What a process of either service stands on, without knowing it: time, log lines, metrics, and the broker."""

from importlib.metadata import version

__version__ = version("ucci-stream")
