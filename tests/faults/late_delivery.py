"""Drawn schedules of late requests on a real broker and real processes, and how many results each kind cost.

Example: python -m tests.faults.late_delivery --schedules 40 --seed 7 --stage router
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal

import typer
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.faults.arena import AREA_OF, INPUTS, SESSION_S, Arena, arena, stage_of
from tests.faults.checker import Finding, check
from tests.faults.evidence import Evidence
from tests.faults.fault_points import Stage
from tests.faults.late_schedules import STRUCK, Played, Player, Schedule, drawn
from tests.support.broker import committed_reader
from tests.support.proxied_broker import Proxied, proxied_broker

#: The processes whose work leads to what a stage writes; the last is the one that is struck.
NAMES: Mapping[Stage, tuple[str, ...]] = {
    "router": ("router-0",),
    "join": ("router-0", "join"),
    "fit": ("router-0", "join", "fit"),
}

#: Schedules in one arena: earlier findings are filtered out each time, which takes longer with every record.
BLOCK = 40

#: Shorter than the other faults' one: an abort waits for its end.
LATE_SESSION_S = 2.0

#: A busy core takes a minute for what else takes seconds; only what stands still takes longer.
DRAINED_S = 150.0
_LOOK_S = 0.05
_MORE_S = 5.0
_MORE = 20
_CAUGHT_UP_S = 0.3
_ASK_S = 10.0
HARMS = ("lost", "doubled")


class NotDrained(AssertionError):
    """A stage has not taken all of its input in time."""


@dataclass
class Outcome:
    schedule: Schedule
    played: Played
    findings: list[Finding]
    seconds: float
    is_stuck: bool = False

    @property
    def spoils(self) -> bool:
        """Whether what comes after it in the same arena shows nothing: versions that are numbered anew stay so."""
        return self.is_stuck or any(
            finding.area == "versions" and finding.harm not in HARMS for finding in self.findings
        )

    def count(self, harm: str) -> int:
        return sum(finding.harm == harm for finding in self.findings)


class Scene:
    """An arena behind a proxy with one process to be struck; made by :func:`scene`."""

    def __init__(self, stage: Arena, proxied: Proxied, struck: Stage, off: tuple[str, ...] = ()) -> None:
        self.arena = stage
        self._area = AREA_OF[struck]
        self._names = NAMES[struck]
        text = stage.config.read_text()
        text = text.replace(proxied.broker.bootstrap, proxied.address)
        text = text.replace(f"= {int(SESSION_S * 1_000)}", f"= {int(LATE_SESSION_S * 1_000)}")
        # A client whose connections break often waits longer and longer before the next, and here all of them do.
        stage.config.write_text(text.replace("[kafka]", '[kafka]\n"reconnect.backoff.max.ms" = 100'))
        child = stage.child(self._names[-1])
        child.orders = replace(child.orders, off=off)
        self._player = Player(stage, proxied.proxy, self._names[-1])
        self._seen: set[Finding] = set()
        self._consumers = {
            name: committed_reader(proxied.broker.bootstrap, {"group.id": f"{stage.prefix}-{name}", "log_level": 2})
            for name in map(stage_of, self._names)
        }

    def play(self, schedule: Schedule) -> Outcome:
        """Play a schedule under steady traffic, wait until all is at rest, and return what is found then."""
        began_s, is_stuck = time.monotonic(), False
        played = self._player.play(schedule)
        try:
            self.come_to_rest()
        except NotDrained:
            is_stuck = True
        found = [finding for finding in self.findings() if finding not in self._seen]
        self._seen.update(found)
        return Outcome(schedule, played, found, time.monotonic() - began_s, is_stuck)

    def await_first_version(self) -> None:
        """Wait until a refit leads to a version, where the struck stage publishes any."""
        versions = self.arena.versions
        if self._area == "versions":
            assert self.arena.archive.wait_for(lambda: len(versions) > 0, DRAINED_S), "no version"
            self.come_to_rest()

    def come_to_rest(self) -> None:
        """Stop asking, and wait until each stage's group stands at the end of all its input. Raises NotDrained."""
        self.arena.senders.stop_asking()
        deadline_s = time.monotonic() + DRAINED_S
        more_s = time.monotonic() + _MORE_S
        for name, consumer in self._consumers.items():
            while not (self.arena.senders.is_idle and self._is_drained(name, consumer)):
                self.arena.supervise(self._names)
                if time.monotonic() > deadline_s:
                    raise NotDrained(f"{name} has not drained within {DRAINED_S:g} s")
                if time.monotonic() > more_s:
                    # Offsets that a late request has set back stay there until the group commits some others.
                    self.arena.senders.ask(_MORE)
                    more_s = time.monotonic() + _MORE_S
                time.sleep(_LOOK_S)

    def findings(self) -> list[Finding]:
        """Return every promise of the struck stage that is broken, once all is at rest."""
        last = 0
        while last != (last := len(self.arena.archive.records)):
            time.sleep(_CAUGHT_UP_S)
        found = self._check(self.arena.evidence(anew=False))
        # What seems to be lost may only not have been read yet.
        return self._check(self.arena.evidence()) if found else found

    def _check(self, evidence: Evidence) -> list[Finding]:
        found = [finding for finding in check(evidence) if finding.area == self._area]
        if self._area == "versions":
            found += self.arena.fold_faults(evidence, _CAUGHT_UP_S)
        return found

    def _is_drained(self, name: Stage, consumer: Consumer) -> bool:
        topics = [f"{self.arena.prefix}.{topic}" for topic in INPUTS[name]]
        with suppress(KafkaException):
            known = consumer.list_topics(timeout=_ASK_S).topics
            places = [TopicPartition(topic, number) for topic in topics for number in known[topic].partitions]
            ends = partial(consumer.get_watermark_offsets, timeout=_ASK_S, cached=False)
            return all(max(at.offset, 0) >= ends(at)[1] for at in consumer.committed(places, timeout=_ASK_S))
        return False


@contextmanager
def scene(proxied: Proxied, directory: Path, seed: int, struck: Stage, off: tuple[str, ...] = ()) -> Iterator[Scene]:
    with arena(proxied.broker, directory, seed, NAMES[struck]) as stage:
        made = Scene(stage, proxied, struck, off)
        stage.start()
        made.await_first_version()
        yield made


def run(
    proxied: Proxied,
    directory: Path,
    schedules: Sequence[Schedule],
    seed: int,
    struck: Stage,
    *,
    off: tuple[str, ...] = (),
    on_outcome: Callable[[Outcome], None] = lambda _outcome: None,
) -> list[Outcome]:
    """Play schedules one after the other, so many in one arena; one that gets stuck ends its arena."""
    left, outcomes, number = list(schedules), list[Outcome](), 0
    while left:
        with scene(proxied, directory / f"arena-{number}", seed + number, struck, off) as stage:
            for _ in range(min(BLOCK, len(left))):
                outcomes.append(stage.play(left.pop(0)))
                on_outcome(outcomes[-1])
                if outcomes[-1].spoils:
                    break
        number += 1
    return outcomes


def table(outcomes: Iterable[Outcome]) -> str:
    """Return as text what the schedules of each kind cost: how many did harm, and how many promises were broken."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in outcomes:
        seen = ["drawn", *(one.harm if one.harm in HARMS else "otherwise wrong" for one in outcome.findings)]
        seen += ["struck", f"answered {outcome.played.error}"] if outcome.played.reached == STRUCK else []
        seen += ["stuck"] if outcome.is_stuck else []
        seen += ["harmed"] if outcome.findings else []
        for kind in (outcome.schedule.kind, "all"):
            found[kind].update(seen)
    told = {kind: ", ".join(f"{count} {what}" for what, count in counts.items()) for kind, counts in found.items()}
    return "".join(f"{kind}: {told[kind]}\n" for kind in sorted(told))


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def late_delivery(
    schedules: Annotated[int, typer.Option(min=1, help="How many to draw.")] = 60,
    seed: Annotated[int, typer.Option(help="The same seed draws the same schedules.")] = 7,
    stage: Annotated[Literal["router", "join", "fit"], typer.Option(help="Whose requests are late.")] = "router",
    off: Annotated[list[str] | None, typer.Option(help="A mechanism to switch off; may be repeated.")] = None,
) -> None:
    """Let transactional requests arrive late, by drawn schedules, and report what was lost or doubled.

    Exit code 1 where anything was, or where a process did not go on.
    """
    draw = Random(seed)
    chosen = [drawn(draw) for _ in range(schedules)]
    directory, began_s = Path(tempfile.mkdtemp(prefix="ucci-late-")), time.monotonic()
    sys.stderr.write(f"logs and data: {directory}\n")
    done: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        done.append(outcome)
        played, took_s = outcome.played, outcome.seconds
        harm = ", ".join(f"{count} {one}" for one in HARMS if (count := outcome.count(one))) or "no harm"
        said = "STUCK" if outcome.is_stuck else f"{played.reached}, answered {played.error}"
        sys.stderr.write(f"{len(done)}/{schedules} {outcome.schedule}: {said}: {harm} ({took_s:.1f} s)\n")

    with proxied_broker(directory / "kafka") as proxied:
        run(proxied, directory, chosen, seed, stage, off=tuple(off or ()), on_outcome=report)
    minutes = (time.monotonic() - began_s) / 60.0
    sys.stdout.write(f"{table(done)}{minutes:.1f} minutes, {stage}, seed {seed}\n")
    raise typer.Exit(1 if any(outcome.findings or outcome.is_stuck for outcome in done) else 0)


if __name__ == "__main__":
    app()
