"""Replaces a file's content whole or not at all, durably, and for its owner alone."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically; blocks until the disk has it.

    A reader of the path finds the former content or the new one, after a crash as well. The file is readable and
    writable by its owner alone (0600). Raises OSError when the disk refuses; the former content stays.
    """
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
