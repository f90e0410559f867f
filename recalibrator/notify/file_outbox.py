"""The outbox on disk: one small file beside the snapshots, replaced atomically and its owner's alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from recalibrator.notify.outbox import Outbox

_log = structlog.get_logger()


class OutboxFile:
    """Where an outbox outlives its process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "notifications.json"
        self._is_failing = False

    def load(self, outbox: Outbox) -> None:
        """Take back what was stored; what is damaged is logged and left."""
        try:
            outbox.load(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("stored notifications are not usable; starting over", path=str(self._path), error=str(error))

    def save(self, outbox: Outbox) -> None:
        """Replace what is stored; where the disk refuses, logged once, a restart may repeat or miss a notification."""
        temporary = self._path.with_suffix(".tmp")
        try:
            with open(temporary, "wb", opener=_open_private) as file:
                file.write(outbox.state())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            if not self._is_failing:
                _log.warning("notifications are not stored", path=str(self._path), error=str(error))
            self._is_failing = True
        else:
            self._is_failing = False


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
