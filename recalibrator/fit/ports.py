"""The fold as its loop drives it, and where the loop keeps cores and reads which version numbers are taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from recalibrator.decoding import Observation
from schemas.calibration import CalibrationVersion
from schemas.settings import WorkloadSettings
from schemas.status import WorkloadStatus
from schemas.trial import CalibrationTrial


class Core(Protocol):
    """The fold over one workload's observations; :class:`recalibrator.core.Recalibrator`."""

    @property
    def current(self) -> CalibrationVersion | None:
        """The version published last."""
        ...

    @property
    def trial(self) -> CalibrationTrial | None:
        """The version on trial beside it, or None."""
        ...

    @property
    def version_floor(self) -> int:
        """The number that the next version lies above."""
        ...

    def observe(self, event: Observation) -> CalibrationVersion | None:
        """Take one observation; return a version to publish, or nothing."""
        ...

    def status(self) -> WorkloadStatus:
        """Return how the workload keeps its promise."""
        ...

    def raise_version_floor(self, version: int) -> None:
        """Have the next version numbered above this one."""
        ...

    def inherit(self, version: CalibrationVersion, trial: CalibrationTrial | None) -> None:
        """Go on from this version and this trial, unless the events have led there, too."""
        ...

    def snapshot(self) -> bytes:
        """Return the whole state."""
        ...


class VersionLog(Protocol):
    """The topics of versions in force and on trial as the fit reads them."""

    def news(self) -> dict[str, int]:
        """Return the highest valid version of each workload that came since the last call; never blocks."""
        ...

    def highest(self) -> dict[str, int]:
        """Read to the end as of now, then return the highest valid version of each workload; blocks."""
        ...

    def newest(self, workload: str) -> tuple[CalibrationVersion | None, CalibrationTrial | None]:
        """Return a workload's newest trusted version as far as was read, unsigned, and the trial under way."""
        ...

    def ignored(self) -> dict[str, int]:
        """Return by workload the numbers too high to be followed that came since the last call; they count nowhere."""
        ...

    def close(self) -> None:
        """Close the reader."""
        ...


class FitState(NamedTuple):
    """What the fit keeps of one partition: its cores as of an offset."""

    offset: int
    cores: Mapping[str, Core]
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
        """Replace what is stored, atomically; return False where the disk refused and the former snapshot stays."""
        ...

    def use(self, workloads: Mapping[str, WorkloadSettings]) -> None:
        """Make and restore cores under these settings from now on."""
        ...

    def new(self, workload: str) -> Core:
        """Return a core that has seen nothing."""
        ...
