"""What can go wrong in a recalibrator; each class says what the caller does next.

Errors of the broker are in :mod:`ucci_runtime.broker.errors`, refused requests in :mod:`ucci_runtime.refusals`.
"""

from __future__ import annotations

from schemas.errors import UcciError


class RecalibratorError(UcciError):
    """Root of the recalibrator's errors."""


class StateInUse(RecalibratorError):
    """Another process works on the same state directory: stop, exit non-zero."""


class StoreDamaged(RecalibratorError):
    """Stored state cannot be read; it is set aside and rebuilt from the topics."""


class StoreOfOtherRelease(StoreDamaged):
    """Stored state is sound, and in the format of another release; it is set aside and rebuilt from the topics."""

    def __init__(self, path: str, found: int, ours: int) -> None:
        super().__init__(f"{path}: is of format {found}, this release keeps {ours}")
        self.found = found


class HomesChanged(RecalibratorError):
    """Somebody gave the repartition topic another number of partitions: stop, exit non-zero."""

    def __init__(self, topic: str, noted: int, found: int) -> None:
        super().__init__(
            f"{topic}: has {found} partitions, and the join has placed its queries over {noted}: that number is fixed; "
            f"end all recalibrators, delete the topic, create it with {noted} partitions and start again"
        )


class DiskFull(RecalibratorError, OSError):
    """The disk takes no more; nothing stored is lost: close what works on it, and begin again once there is room."""


#: Free space of a disk below which somebody should be told, before it is full.
LOW_FREE_BYTES = 1_000_000_000
