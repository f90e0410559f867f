"""Which faults befall the service in which order, and the judgement after each kind of them.

Kinds of one group share an arena. After each kind the arena is left to settle and is judged; what is found then and was
not found before is that kind's doing. Kinds that run beside each other share a judgement by area: queries are the
router's, labels the join's, versions the fit's.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import broker_faults, model_faults, placement, process_faults, state_faults
from tests.faults.arena import AREA_OF, RATE, Arena, Ended, arena, stage_of
from tests.faults.checker import Area, Finding
from tests.faults.episodes import Episode, Kind
from tests.faults.evidence import Evidence
from tests.faults.resident_memory import WARM_UP_S, MemoryWatch, Slope, slopes
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.local.processes import StackFailed

#: How many findings of each kind are printed while the campaign runs; the report lists all of them.
_FIRST = 5


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    #: Kinds of one group share an arena.
    group: str

    kind: Kind
    #: Faults of it in one round.
    times: int
    #: Kinds of a group that name one run beside each other, and answer for their own area alone.
    area: Area | None = None
    #: What else is counted, from what the topics hold in the end.
    figures: Callable[[Arena, Evidence], Mapping[str, int]] | None = None


ENTRIES: tuple[Entry, ...] = (
    Entry("kill router", "kills", process_faults.kills("router"), 100, "queries"),
    Entry("kill join", "kills", process_faults.kills("join"), 100, "labels"),
    Entry("kill fit", "kills", process_faults.kills("fit"), 100, "versions"),
    Entry("stop router", "stops", process_faults.stops("router"), 3, "queries"),
    Entry("stop join", "stops", process_faults.stops("join"), 3, "labels"),
    Entry("stop fit", "stops", process_faults.stops("fit"), 3, "versions"),
    Entry("two under one id", "members", process_faults.twins, 6),
    Entry("rebalance storm", "members", process_faults.rebalances, 3),
    *(Entry(f"model: {name}", "models", model_faults.models(name), 3) for name in model_faults.FAULTS),
    Entry("join store deleted", "state", state_faults.state("join", "join store deleted", state_faults.delete), 3),
    Entry("join store cut", "state", state_faults.state("join", "join store cut", state_faults.truncate), 3),
    Entry("join store read-only", "state", state_faults.read_only("join", "join store read-only"), 2),
    Entry("snapshots deleted", "state", state_faults.state("fit", "snapshots deleted", state_faults.delete), 3),
    Entry("snapshots cut", "state", state_faults.state("fit", "snapshots cut", state_faults.truncate), 3),
    Entry("snapshots read-only", "state", state_faults.read_only("fit", "snapshots read-only"), 2),
    Entry("clock jump", "state", state_faults.clock_jumps, 4),
    Entry("broker SIGTERM", "broker ended", broker_faults.broker("broker SIGTERM", broker_faults.ended), 2),
    Entry("broker SIGKILL", "broker killed", broker_faults.broker("broker SIGKILL", broker_faults.killed), 2),
    Entry("broker 30 s away", "broker away", broker_faults.broker("broker 30 s away", broker_faults.away), 1),
    Entry("broker SIGSTOP 5 s", "broker stopped", broker_faults.broker("broker SIGSTOP 5 s", broker_faults.frozen), 3),
    Entry("retention overtakes", "retention", broker_faults.retention, 6),
    Entry("placement", "placement", placement.placement(), 20, figures=placement.figures),
)


@dataclass
class Row:
    kind: str
    episodes: list[Episode]
    #: Promises broken.
    findings: list[Finding]
    #: While it lasted.
    queries: int = 0
    dead_letters: int = 0
    #: Processes that ended by themselves and were started again.
    ended: list[str] = field(default_factory=list)
    figures: Mapping[str, int] = field(default_factory=dict)

    def count(self, *harms: str) -> int:
        return sum(finding.harm in harms for finding in self.findings)

    @property
    def recoveries_s(self) -> list[float]:
        return [episode.recovery_s for episode in self.episodes if episode.recovery_s is not None]

    @property
    def unrecovered(self) -> list[Episode]:
        return [episode for episode in self.episodes if episode.recovery_s is None]


#: Receives the campaign's progress, line by line.
Tell = Callable[[str], None]


def _tell_nobody(_line: str) -> None:
    """Print nothing."""


@dataclass
class _Judgement:
    """What was found so far, so that each finding is somebody's only once."""

    seen: set[Finding] = field(default_factory=set)
    queries: int = 0
    letters: int = 0

    def rows(
        self,
        run: Sequence[tuple[Entry, list[Episode]]],
        evidence: Evidence,
        found: list[Finding],
        ended: Iterable[Ended],
    ) -> list[Row]:
        fresh = [finding for finding in found if finding not in self.seen]
        self.seen |= set(found)
        queries, letters = len(evidence.acknowledged), sum(1 for _ in evidence.of("dead-letters"))
        rows = [
            Row(
                entry.name,
                episodes,
                [finding for finding in fresh if entry.area in {None, finding.area}],
                queries - self.queries,
                letters - self.letters,
                [one.how for one in ended if entry.area in {None, AREA_OF[stage_of(one.name)]}],
            )
            for entry, episodes in run
        ]
        self.queries, self.letters = queries, letters
        return rows


def run(
    broker: LocalBroker, directory: Path, entries: Iterable[Entry], seed: int, tell: Tell = _tell_nobody
) -> list[Row]:
    """Let all kinds befall the service; call it in the thread that started the broker."""
    groups, rows = defaultdict[str, list[Entry]](list), []
    for entry in entries:
        groups[entry.group].append(entry)
    for group, members in groups.items():
        with arena(broker, directory / group, seed) as stage:
            stage.start()
            rows += _run_group(stage, members, seed, tell)
    return rows


def _run_group(stage: Arena, members: list[Entry], seed: int, tell: Tell) -> list[Row]:
    judgement, rows = _Judgement(), []
    beside = [entry for entry in members if entry.area is not None]
    for together in filter(None, [beside, *([entry] for entry in members if entry.area is None)]):
        done = _run_beside(stage, together, seed, tell)
        evidence, found = stage.judge()
        for (entry, _), row in zip(done, judgement.rows(done, evidence, found, stage.ended), strict=True):
            if entry.figures is not None:
                row.figures = entry.figures(stage, evidence)
            rows.append(row)
            _tell_row(tell, row)
        stage.ended.clear()
        stage.senders.go_on()
    return rows


def _run_beside(stage: Arena, entries: list[Entry], seed: int, tell: Tell) -> list[tuple[Entry, list[Episode]]]:
    def one(entry: Entry) -> tuple[Entry, list[Episode]]:
        found = []
        for episode in entry.kind(stage, random.Random(f"{seed} {entry.name}"), entry.times):
            found.append(episode)
            _tell_episode(tell, episode)
        return entry, found

    if len(entries) == 1:
        return [one(entries[0])]
    with ThreadPoolExecutor(len(entries)) as pool:
        return list(pool.map(one, entries))


def _tell_episode(tell: Tell, episode: Episode) -> None:
    took = "no commit" if episode.recovery_s is None else f"{episode.recovery_s:.1f} s"
    tell(f"{episode.kind}: {episode.what}: {took}")


def _tell_row(tell: Tell, row: Row) -> None:
    tell(f"{row.kind}: {len(row.episodes)} faults, {len(row.findings)} findings")
    for name, count in row.figures.items():
        tell(f"  {name}: {count}")
    # A run that is stopped leaves no report.
    for finding in row.findings[:_FIRST]:
        tell(f"  {finding.area}, {finding.harm}: {finding.what}")


# --- soak ---

FAULT_EVERY_S = 10.0
SOAKED = (
    "model: brown-out",
    "model: down",
    "model: hanging",
    "model: 500 storm",
    "model: slow-loris",
    "model: 10 MB reply",
    "model: connection reset",
    "broker SIGSTOP 5 s",
    "broker SIGKILL",
    "rebalance storm",
    "kill router",
    "kill join",
    "kill fit",
)
#: The router that no kill hits, so that its memory can be followed for the whole time.
WITNESS = "router-0"


@dataclass
class Soak:
    rows: list[Row]
    memory: dict[str, Slope]
    minutes: float
    queries: int


def soak(
    broker: LocalBroker,
    directory: Path,
    minutes: float,
    seed: int,
    tell: Tell = _tell_nobody,
    *,
    entries: Sequence[Entry] = ENTRIES,
    rate: float = RATE,
    warm_up_s: float = WARM_UP_S,
) -> Soak:
    """Let a drawn fault befall the service every ten seconds, or when the last one is over; follow its memory.

    ``entries``: the kinds to draw from, as far as a soak has them; without kills each process has one life, whose
    memory shows whether it grows. ``warm_up_s``: seconds of each process's life before its memory counts: a fit's grows
    until its window of labels is full.
    """
    draw = random.Random(f"{seed} soak")
    soaked = {entry.name: entry for entry in entries if entry.name in SOAKED}
    rows = {name: Row(name, [], []) for name in soaked}
    with arena(broker, directory / "soak", seed, rate=rate) as stage:
        stage.start()
        watch = MemoryWatch(lambda: _pids(stage))
        watch.start()
        began_s = time.monotonic()
        while (since_s := time.monotonic() - began_s) < minutes * 60.0:
            name = draw.choice(list(soaked))
            for episode in _one_fault(stage, soaked[name], draw):
                rows[name].episodes.append(episode)
                _tell_episode(tell, episode)
            next_s = began_s + since_s + FAULT_EVERY_S
            time.sleep(max(0.0, next_s - time.monotonic()))
        watch.end()
        passed = (time.monotonic() - began_s) / 60.0
        evidence, found = stage.judge()
        letters = sum(1 for _ in evidence.of("dead-letters"))
        total = Row("soak", [], found, len(evidence.acknowledged), letters, [one.how for one in stage.ended])
        _tell_row(tell, total)
    met = [row for row in rows.values() if row.episodes]
    return Soak([*met, total], slopes(watch.samples, warm_up_s), passed, total.queries)


def _one_fault(stage: Arena, entry: Entry, draw: random.Random) -> Iterator[Episode]:
    if entry.group == "kills":
        name = "router-1" if entry.name == "kill router" else entry.name.removeprefix("kill ")
        yield process_faults.killed_anywhere(stage, name)
    else:
        yield from entry.kind(stage, draw, 1)


def _pids(stage: Arena) -> dict[str, int]:
    found = {name: child.pid for name, child in list(stage.children.items()) if child.is_alive}
    followed = {name: pid for name, pid in found.items() if name in {WITNESS, "router-1", "join", "fit"}}
    with suppress(StackFailed):  # a broker that is being started again has no process for a moment
        followed["broker"] = stage.broker.pid
    return followed
