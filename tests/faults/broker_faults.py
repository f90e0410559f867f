"""The broker ends, dies, stays away or hangs, and its retention overtakes those who have stopped reading.

Linux ends a child with the thread that started it: these run in the thread that started the broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.faults.arena import INPUTS, Arena, stage_of
from tests.faults.episodes import Episode, Kind, recovered
from tests.faults.fault_points import Stage

AWAY_S = 30.0
FROZEN_S = 5.0
_ASK_S = 30.0
#: How long inputs pile up before retention takes them.
_ARREARS_S = 3.0


def broker(kind: str, befall: Callable[[Arena], None]) -> Kind:
    def fault(arena: Arena, _draw: Random, times: int) -> Iterator[Episode]:
        for _ in range(times):
            began_s = time.monotonic()
            befall(arena)
            fault_s, ended_s = time.monotonic() - began_s, time.monotonic()
            found = [recovered(arena, kind, name, name, fault_s=fault_s) for name in ("router-0", "join", "fit")]
            slow = any(episode.recovery_s is None for episode in found)
            what = "; ".join(episode.what for episode in found) if slow else "all stages"
            yield Episode(kind, what, fault_s, None if slow else time.monotonic() - ended_s)

    return fault


def ended(arena: Arena) -> None:
    """SIGTERM, and a start at once."""
    arena.broker.restart()


def killed(arena: Arena) -> None:
    """SIGKILL, and a start at once."""
    arena.broker.kill()
    arena.broker.start()


def away(arena: Arena) -> None:
    """SIGTERM, and a start half a minute later."""
    arena.broker.stop()
    time.sleep(AWAY_S)
    arena.broker.start()


def frozen(arena: Arena) -> None:
    """SIGSTOP for some seconds."""
    arena.broker.freeze()
    time.sleep(FROZEN_S)
    arena.broker.thaw()


def retention(arena: Arena, draw: Random, times: int) -> Iterator[Episode]:
    """Stop a stage, let its topics' retention take what it has not read, and start it again."""
    for _ in range(times):
        stage = draw.choice(tuple(INPUTS))
        names = [name for name, child in arena.children.items() if stage_of(name) == stage and child.is_alive]
        began_s = time.monotonic()
        for name in names:
            arena.child(name).kill()
        time.sleep(_ARREARS_S)
        taken = overtake(arena, stage, draw)
        fault_s = time.monotonic() - began_s
        for name in names:
            arena.child(name).start()
        what = f"{stage}: {taken} unread records deleted"
        yield recovered(arena, "retention overtakes", what, names[0], fault_s=fault_s)


def overtake(arena: Arena, stage: Stage, draw: Random) -> int:
    """Delete most of what a stage has not read; what is deleted is excused, and counted."""
    committed, seen = _committed(arena, stage), arena.archive.seen()
    ends = {place[:2]: place.offset + 1 for place in sorted(seen) if place.topic in INPUTS[stage]}
    wanted, before = [], len(arena.excused)
    for (topic, partition), end in ends.items():
        start = committed.get((topic, partition), 0)
        low = start + int((end - start) * draw.uniform(0.5, 1.0))
        if low > start:
            wanted.append(TopicPartition(f"{arena.prefix}.{topic}", partition, low))
            taken = (place for place in seen if place[:2] == (topic, partition) and start <= place.offset < low)
            arena.excused.update(taken)
    admin = AdminClient({"bootstrap.servers": arena.broker.bootstrap})
    for future in admin.delete_records(wanted, request_timeout=_ASK_S).values() if wanted else ():
        future.result()
    return len(arena.excused) - before


def _committed(arena: Arena, stage: Stage) -> dict[tuple[str, int], int]:
    """Return where a stage's group stands, by topic without prefix and partition."""
    consumer = Consumer({"bootstrap.servers": arena.broker.bootstrap, "group.id": f"{arena.prefix}-{stage}"})
    numbers = range(arena.settings.topics.partitions)
    with closing(consumer):
        asked = [TopicPartition(f"{arena.prefix}.{topic}", n) for topic in INPUTS[stage] for n in numbers]
        found = consumer.committed(asked, timeout=_ASK_S)
    strip = len(arena.prefix) + 1
    return {(tp.topic[strip:], tp.partition): max(tp.offset, 0) for tp in found}
