"""``python -m ucci_stream`` is ``ucci-stream``."""

from ucci_stream.cli import main

main()
