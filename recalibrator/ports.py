"""The seams between the stages' loops and the world: logs to read, transactions to commit, state to keep, time.

A loop holds nothing of Kafka, SQLite or the machine's clock; it can be driven by hand in a test, crash included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from recalibrator.join.query_state import JoinState
from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.labelled import LabelledExample
from schemas.status import LabelerCounts, LabelerStatus, WorkloadStatus
from schemas.traffic import TrafficSummary
from schemas.trial import CalibrationTrial
from ucci_runtime.broker.records import Header, Input, OutputRecord

Observation = LabelledExample | TrafficSummary | Command


class Record(NamedTuple):
    """One record as the broker delivered it.

    Parameters
    ----------
    timestamp_ms : int
        0 where there is none.
    by_broker : bool
        Whether the broker dated it (``LogAppendTime``), rather than its producer.
    """

    source: Input
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()
    by_broker: bool = False


class EndReached(NamedTuple):
    """The reader stands at the end of one partition."""

    source: Input
    offset: int


class Lag(NamedTuple):
    """How far a reader is behind the end of one partition.

    Parameters
    ----------
    records : int
        In offsets.
    seconds : float or None
        Age of the newest record taken, by the clocks of those who wrote it; 0 at the end, None before the first.
    """

    records: int
    seconds: float | None


class Assignee(Protocol):
    """Who is told of its partitions by an :class:`EventLog`, always from within :meth:`EventLog.poll`."""

    def assigned(self, committed: Mapping[Input, int | None]) -> Mapping[Input, int]:
        """Take over these partitions, in place of all before; return the offset to read each from.

        Parameters
        ----------
        committed : mapping of Input to int or None
            The group's offsets: everything below was taken, and its outputs are committed.
        """
        ...

    def revoked(self) -> None:
        """Commit what can be committed now, and let go of all partitions."""
        ...

    def lost(self) -> None:
        """Let go of all partitions; commit nothing, others own them already."""
        ...


class EventLog(Protocol):
    """The group's view of its input topics."""

    def subscribe(self, assignee: Assignee) -> None:
        """Join the group."""
        ...

    def poll(self, timeout_s: float) -> Sequence[Record | EndReached]:
        """Return what has come; blocks up to ``timeout_s`` while nothing has."""
        ...

    def group(self) -> object:
        """Return the group's metadata, by which the broker fences a former owner."""
        ...

    def rewind(self) -> None:
        """Ask the group's offsets again and have the present partitions assigned anew."""
        ...

    def hold(self, source: Input) -> None:
        """Deliver nothing of this partition until :meth:`read_from`."""
        ...

    def read_from(self, starts: Mapping[Input, int]) -> None:
        """Read all partitions from these offsets."""
        ...

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far each partition's reader is behind its end, as last heard."""
        ...

    def close(self) -> None:
        """Leave the loop; the membership stays for whoever restarts in time."""
        ...


class Transactions(Protocol):
    """Outputs and offsets, committed together or not at all."""

    def commit(self, records: Sequence[OutputRecord], offsets: Mapping[Input, int], group: object) -> None:
        """Commit; blocks.

        Raises
        ------
        Rewind
            When it was not committed, or nobody knows.
        """
        ...

    def close(self) -> None:
        """Let go of the producer."""
        ...


class StoredRow(NamedTuple):
    """What the join keeps of one query."""

    state: JoinState
    touched_ms: int


class LabelerKey(NamedTuple):
    """Whose counts, and in which partition of the feedback."""

    partition: int
    workload: str
    labeler: str | None


class RequestKey(NamedTuple):
    """An open label request."""

    partition: int
    query_id: str
    workload: str


class JoinStore(Protocol):
    """Rows and offsets, stored together."""

    def load(self, partition: int, query_ids: Iterable[str]) -> dict[str, JoinState]:
        """Return the stored states of those queries that have one."""
        ...

    def offsets(self) -> dict[Input, int]:
        """Return the offsets up to which the rows are complete."""
        ...

    def commit(
        self,
        rows: Mapping[tuple[int, str], StoredRow],
        offsets: Mapping[Input, int],
        judged: Mapping[LabelerKey, LabelerCounts],
    ) -> None:
        """Store rows and offsets, and add to the labelers' counts, in one transaction.

        A row's time of touch never moves backwards.
        """
        ...

    def labelers(self, partitions: Collection[int]) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return the busiest labelers of these partitions, by workload."""
        ...

    def expire(self, before_ms: int, most: int) -> Mapping[str, int]:
        """Delete rows not touched since, then rows above the bounds, ``most`` of each; return how many, by kind."""
        ...

    def expire_labelers(self, before_ms: int) -> None:
        """Forget the counts of labelers who have been silent since."""
        ...

    def overdue_requests(self, partitions: Iterable[int], before_ms: int, most: int) -> Sequence[RequestKey]:
        """Return open label requests that are older, beyond so many of a workload, or without their row."""
        ...

    def close_requests(self, keys: Iterable[RequestKey]) -> None:
        """Hold these label requests no longer for open."""
        ...

    @property
    def open_requests(self) -> Mapping[str, int]:
        """Number of label requests held for open, by workload."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows stored."""
        ...

    @property
    def row_bytes(self) -> int:
        """Bytes that the rows take."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


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
        """Return what was stored, or None where nothing is or it cannot be read."""
        ...

    def save(self, partition: int, state: FitState) -> None:
        """Replace what is stored, atomically."""
        ...

    def new(self, workload: str) -> Core:
        """Return a core that has seen nothing."""
        ...


class Stage(Protocol):
    """A loop that a thread can drive."""

    @property
    def is_ready(self) -> bool:
        """Whether it has caught up."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def turn(self) -> None:
        """Do one round; blocks for little."""
        ...

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return {}

    def gauges(self) -> Mapping[str, float]:
        """Return sizes worth watching, by metric name."""
        return {}

    def labelers(self) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return what labelers have said, by workload."""
        return {}

    def close(self) -> None:
        """Commit the rest and leave."""
        ...
