"""What can go wrong in a recalibrator; each class says what the caller does next.

::

    RecalibratorError
    ├── StateInUse             another process works on this state_dir: stop, exit non-zero
    ├── StoreDamaged           stored state cannot be read: set it aside, rebuild it from the topics
    └── DiskFull               close what works on that disk, say so, and begin again once there is room

Errors of the broker are in :mod:`ucci_runtime.broker.errors`, refused requests in :mod:`ucci_runtime.refusals`.
"""

from __future__ import annotations

from schemas.errors import UcciError


class RecalibratorError(UcciError):
    """Root of the recalibrator's errors."""


class StateInUse(RecalibratorError):
    """Another process works on the same state directory."""


class StoreDamaged(RecalibratorError):
    """Stored state cannot be read; it is set aside and rebuilt from the topics."""


class DiskFull(RecalibratorError, OSError):
    """The disk takes no more; nothing that is stored is lost."""


#: Free space of a disk below which somebody should be told, before it is full.
LOW_FREE_BYTES = 1_000_000_000
