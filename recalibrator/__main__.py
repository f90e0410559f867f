"""``python -m recalibrator``: the same as the command ``recalibrator``."""

from recalibrator.cli import main

if __name__ == "__main__":
    main()
