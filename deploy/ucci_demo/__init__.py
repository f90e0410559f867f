"""Two tiny real models, what they once answered, and a server that speaks vLLM's protocol."""

from importlib.metadata import version

__version__ = version("ucci-stream-demo")
