"""What the checker finds without the mechanisms: each is switched off in turn, and something is doubled."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from tests.faults.arena import PARTITIONS, Arena, arena
from tests.faults.checker import Area, Harm, check
from tests.faults.child import Orders
from tests.faults.episodes import await_stopped, thaw
from tests.faults.evidence import Evidence, event_of
from tests.faults.fault_points import Strike, point_named
from tests.faults.model_pair import SIDES
from tests.faults.process_faults import PAST_SESSION_S
from tests.support.scripted_model_server import Fault
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEED = 31
QUERIES = 120
WAIT_S = 30.0
#: Within which labels that are not lost count.
SETTLED_S = 10.0


def orders(stage: Arena, name: str, off: str, strike: Strike | None = None) -> Orders:
    """Order a process to run without a mechanism, if one is named."""
    return replace(stage.child(name).orders, off=(off,) if off else (), strike=strike)


def harm(stage: Arena) -> set[tuple[Area, Harm]]:
    return {(finding.area, finding.harm) for finding in stage.judge()[1]}


def test_without_done_offsets_a_kill_doubles_answers(broker: LocalBroker, tmp_path: Path) -> None:
    """Without the offsets done beyond the committed one, a restart answers again what was answered already."""
    with arena(broker, tmp_path, SEED, ("router-0",)) as stage:
        stage.listen()
        for side in SIDES:
            stage.models.play(side, Fault("hang", containing="photo 0 of"))
        router = stage.child("router-0")
        router.start(orders(stage, "router-0", "done offsets"))
        stage.senders.ask(QUERIES)
        stage.await_results(QUERIES - 1)
        router.kill()
        for side in SIDES:
            stage.models.recover(side)
        router.start(orders(stage, "router-0", "done offsets"))
        # Once these are answered, whatever stands before them is answered again, if anything is.
        stage.senders.ask(QUERIES)
        found = harm(stage)
    assert ("queries", "doubled") in found


def test_without_fencing_a_stopped_router_doubles_results(broker: LocalBroker, tmp_path: Path) -> None:
    """Without fencing, a router that wakes up commits what another has answered meanwhile."""
    with arena(broker, tmp_path, SEED, ("router-0", "router-1")) as stage:
        stage.listen()
        stopped, other = stage.child("router-0"), stage.child("router-1")
        strike = Strike(point_named("begin transaction, before"), 1, tmp_path / "armed", signal.SIGSTOP)
        stopped.start(orders(stage, "router-0", "fencing", strike))
        stage.senders.ask(QUERIES)
        stage.await_results(QUERIES)
        (tmp_path / "armed").touch()
        stage.senders.ask(QUERIES)
        assert await_stopped(stopped, WAIT_S)
        other.start(orders(stage, "router-1", "fencing"))
        # The session of the one that was stopped ends, and the other answers all that it has in hand.
        time.sleep(PAST_SESSION_S)
        stage.await_results(2 * QUERIES - stage.results)
        thaw(stopped)
        stage.senders.ask(QUERIES)
        stage.await_results(QUERIES)
        found = harm(stage)
    assert ("queries", "doubled") in found


def test_without_feedback_ids_a_repetition_counts_again(broker: LocalBroker, tmp_path: Path) -> None:
    """Without the ids of feedback, a label that was sent again is joined again."""
    assert ("labels", "doubled") in joined_after(broker, tmp_path, ("feedback ids", None))


def test_without_held_back_outputs_a_kill_doubles_examples(broker: LocalBroker, tmp_path: Path) -> None:
    """Without holding outputs back, a join killed between Kafka's commit and its own writes them a second time."""
    (tmp_path / "armed").touch()
    strike = Strike(point_named("store rows, before"), 1, tmp_path / "armed")
    assert ("labels", "doubled") in joined_after(broker, tmp_path, ("", strike), ("held-back outputs", None))


def test_without_forwarding_misplaced_labels_are_lost(broker: LocalBroker, tmp_path: Path) -> None:
    """Without forwarding, labels are lost whose producers do not hash as ours do, and no others."""
    with arena(broker, tmp_path, SEED, ("router-0", "join")) as stage:
        stage.listen()
        stage.senders.scatter()
        stage.child("join").start(orders(stage, "join", "forwarding"))
        stage.child("router-0").start()
        stage.senders.ask(QUERIES)
        stage.await_results(QUERIES)
        assert not stage.settle(SETTLED_S), "every label counted"
        evidence = stage.evidence()
    lost = {finding.what.partition(":")[0] for finding in check(evidence) if finding.harm == "lost"}
    placed = {
        event_of(record)["query_id"]
        for record in evidence.of("feedback")
        if crc32(event_of(record)["query_id"].encode()) % PARTITIONS == record.place.partition
    }
    spoken_of_once = {query_id for query_id, times in spoken_of(evidence).items() if times == 1}
    assert len(lost) > QUERIES / 4
    assert lost & spoken_of_once == spoken_of_once - placed


def spoken_of(evidence: Evidence) -> Counter[str]:
    return Counter(event_of(record)["query_id"] for record in evidence.of("feedback"))


def joined_after(broker: LocalBroker, tmp_path: Path, *lives: tuple[str, Strike | None]) -> set[tuple[Area, Harm]]:
    """Return the harm after a join has lived these lives one after the other, all but the last ended by a strike.

    A life is lived again until an example is committed: one whose first batch held no label yet proves nothing.
    """
    with arena(broker, tmp_path, SEED, ("router-0", "join")) as stage:
        stage.listen()
        stage.child("router-0").start()
        stage.senders.ask(QUERIES)
        stage.await_results(QUERIES)
        assert stage.archive.wait_for(lambda: stage.senders.is_idle, WAIT_S)
        join = stage.child("join")
        for off, strike in lives:
            join.start(orders(stage, "join", off, strike))
            while strike is not None:
                assert join.await_end(WAIT_S) == -signal.SIGKILL
                if has_example(stage):
                    break
                join.start(orders(stage, "join", off, strike))
        # Once these are joined, whatever stands before them is joined again, if anything is.
        stage.senders.ask(QUERIES)
        return harm(stage)


def has_example(stage: Arena) -> bool:
    """Whether the join has committed a labelled example."""
    observed = (kept for place, kept in stage.archive.read_again().items() if place.topic == "observations")
    return any(json.loads(kept.value or b"{}").get("kind") == "labelled" for kept in observed)
