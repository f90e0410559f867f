"""The seams between a service and the broker: what a service asks of it, whichever broker it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ucci_runtime.broker.records import EndReached, Input, Lag, OutputRecord, Record


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
