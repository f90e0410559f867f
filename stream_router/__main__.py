"""``python -m stream_router``: the same as the command ``stream-router``."""

from stream_router.cli import main

if __name__ == "__main__":
    main()
