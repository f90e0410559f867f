"""Where the two inputs of one partition number stand, and up to where their outputs are in the topics already.

Records and ends of partitions flow in; whether to take them now, and whether their outputs may go out, flows out. While
a pair catches up, neither side goes beyond the group's offset before the other has reached its own: an output due
beyond them could otherwise be held back with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ucci_runtime.broker.records import EndReached, Input, Record


@dataclass(slots=True)
class Pair:
    """The two inputs of one partition number.

    Parameters
    ----------
    positions : dict of Input to int
        The next offsets to take.
    limits : dict of Input to int
        Offsets below which outputs are in the topics already.
    note : callable
        Told in one word of what should not happen.
    committed : dict of Input to int
        Offsets that the group and the store know.
    is_live : bool
        Whether outputs go out.
    """

    positions: dict[Input, int]
    limits: dict[Input, int]
    note: Callable[[str], None]
    committed: dict[Input, int] = field(default_factory=dict)
    is_live: bool = False

    @property
    def has_caught_up(self) -> bool:
        """Whether both sides have reached their limits."""
        return all(self.positions[source] >= limit for source, limit in self.limits.items())

    def go_live(self) -> None:
        """Let outputs out, from exactly where the group stands."""
        self.is_live = True
        self.positions = dict(self.limits)
        self.committed = dict(self.limits)

    def admits(self, record: Record) -> bool:
        """Move beyond a record and tell that it may be taken; False when it must wait for the other side."""
        source = record.source
        if record.offset < self.positions[source]:
            # The log was made anew and its offsets begin again: nothing of it was taken.
            self.note("log_went_back")
            self.limits[source] = self.positions[source] = record.offset
        if not self.is_live and record.offset >= self.limits[source]:
            self.positions[source] = self.limits[source]
            return False
        self.positions[source] = record.offset + 1
        return True

    def reach_end(self, end: EndReached) -> bool:
        """Take note of an end; tell whether there are offsets to commit without any record.

        Beyond the last record stand transaction markers only; committed, they show as lag no longer.
        """
        if not self.is_live:
            if end.offset < self.limits[end.source]:
                self.note("log_shorter_than_committed")
                self.limits[end.source] = end.offset
            self.positions[end.source] = self.limits[end.source]
            return False
        if end.offset <= self.positions[end.source]:
            return False
        self.positions[end.source] = end.offset
        return True
