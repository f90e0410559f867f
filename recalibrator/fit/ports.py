"""Where the fit's loop keeps its cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from recalibrator.fit.recalibrator import Recalibrator
from schemas.settings import WorkloadSettings


class FitState(NamedTuple):
    """What the fit keeps of one partition: its cores as of an offset."""

    offset: int
    cores: Mapping[str, Recalibrator]
    history: Mapping[str, Sequence[int]]


class SnapshotStore(Protocol):
    """Cores and the offset they stand at, stored together."""

    def load(self, partition: int) -> FitState | None:
        """Return what was stored, or None where nothing is or it is damaged.

        Raises
        ------
        OSError
            When it cannot be read now; nobody knows what is in it.
        """
        ...

    def save(self, partition: int, state: FitState) -> bool:
        """Replace what is stored, atomically; return False where the disk refused and the previous snapshot stays."""
        ...

    def use(self, workloads: Mapping[str, WorkloadSettings]) -> None:
        """Make and restore cores under these settings from now on."""
        ...

    def new(self, workload: str) -> Recalibrator:
        """Return a core that has seen nothing."""
        ...
