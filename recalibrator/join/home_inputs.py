"""The partitions that are read for one home: where each stands, and what was taken but not committed yet.

A home that moves here catches up first: it reads again what the group has committed already, with its outputs held
back. While it does, no input goes beyond the group's offset before all others have reached their own: an output that is
due beyond them could otherwise be held back with the rest.

An earlier release committed without forwarding. What it left in the wrong partition is forwarded while the home catches
up, as far as the group's offsets carry no note of ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from recalibrator.join.ports import LabelerKey, StoredRow
from recalibrator.join.query_state import QueryState
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.status import LabelerCounts
from schemas.traffic import TrafficSummary
from ucci_runtime.broker.records import EndReached, Input, OutputRecord, Record


@dataclass(slots=True)
class HomeInputs:
    """The inputs of one home: its partition of the repartition topic, and those of results and feedback."""

    #: The next offsets to take.
    positions: dict[Input, int]
    #: Offsets below which outputs are in the topics already.
    limits: dict[Input, int]
    #: Called with one word when the log is not what its offsets say.
    note: Callable[[str], None]
    #: Offsets that the group and the store know.
    committed: dict[Input, int] = field(default_factory=dict)
    #: Whether outputs go out.
    is_live: bool = False
    #: Inputs of which an earlier release has committed a part, and forwarded nothing.
    unforwarded: frozenset[Input] = frozenset()

    @property
    def has_caught_up(self) -> bool:
        """Whether both inputs have reached their limits."""
        return all(self.positions[source] >= limit for source, limit in self.limits.items())

    def go_live(self) -> None:
        """Let outputs out, from exactly where the group stands."""
        self.is_live = True
        self.positions = dict(self.limits)
        # Those that carry no note of ours are committed anew, with it.
        self.committed = {source: limit for source, limit in self.limits.items() if source not in self.unforwarded}

    def forwards(self, source: Input) -> bool:
        """Return whether a record of this input that belongs elsewhere is yet to be forwarded."""
        return self.is_live or source in self.unforwarded

    def admits(self, record: Record) -> bool:
        """Move beyond a record and return True; return False when it must wait for another input."""
        source = record.source
        if record.offset < self.positions[source]:
            # The log was recreated and its offsets begin again: nothing of it was taken.
            self.note("log_went_back")
            self.limits[source] = self.positions[source] = record.offset
        if not self.is_live and record.offset >= self.limits[source]:
            self.positions[source] = self.limits[source]
            return False
        self.positions[source] = record.offset + 1
        return True

    def reach_end(self, end: EndReached) -> bool:
        """Move to an end; return whether there are offsets to commit without any record.

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


#: The home and the id of a query.
QueryKey = tuple[int, str]


@dataclass(slots=True)
class Uncommitted:
    """What was taken since the last commit; dropped whole when a commit fails."""

    #: The states that were loaded or changed; of queries that the store does not have, that nothing is known.
    states: dict[QueryKey, QueryState] = field(default_factory=dict)
    #: The changed queries, each with the latest time of its records in Unix milliseconds.
    touched: dict[QueryKey, int] = field(default_factory=dict)
    #: Counts to add to those of the labelers.
    agreement: dict[LabelerKey, LabelerCounts] = field(default_factory=dict)

    outputs: list[OutputRecord] = field(default_factory=list)
    #: The counter of each workload's results.
    traffic: dict[str, TrafficSummarizer] = field(default_factory=dict)
    #: What was taken of counters that were full.
    full_summaries: list[TrafficSummary] = field(default_factory=list)

    records: int = 0
    #: When the first record was taken, by the monotonic clock; infinite where there is nothing to commit.
    since_s: float = math.inf

    def change(self, key: QueryKey, state: QueryState, touched_ms: int) -> None:
        """Replace what is known of a query."""
        self.states[key] = state
        self.touched[key] = max(touched_ms, self.touched.get(key, 0))

    def count_traffic(self, routed: RoutedEvent, settings: WorkloadSettings) -> None:
        """Count one result of a workload."""
        if settings.name not in self.traffic:
            self.traffic[settings.name] = TrafficSummarizer(settings)
        counter = self.traffic[settings.name]
        counter.add(routed)
        if counter.is_full and (summary := counter.take()) is not None:
            self.full_summaries.append(summary)

    def summaries(self) -> list[TrafficSummary]:
        """Return the traffic counted, by workload, and restart the count."""
        summaries = self.full_summaries
        self.full_summaries = []
        for _, counter in sorted(self.traffic.items()):
            if (summary := counter.take()) is not None:
                summaries.append(summary)
        return summaries

    def rows(self) -> dict[QueryKey, StoredRow]:
        """Return what to store."""
        return {key: StoredRow(self.states[key], ms) for key, ms in self.touched.items()}
