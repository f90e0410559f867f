"""The operator's command; it may import both services, and neither imports it."""

from importlib.metadata import version

__version__ = version("ucci-stream")
