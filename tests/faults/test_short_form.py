"""The short form of `make chaos`: processes killed, their files lost, a model server lost, on the shared broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import placement
from tests.faults.arena import PARTITIONS
from tests.faults.campaign import ENTRIES, run
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEED = 20261045
KILLS = 5
#: One of the steps that the seed draws for each: when Kafka has committed what the process has not noted yet.
COMMITTED = {
    "kill router": "commit transaction, after",
    "kill join": "store rows, before",
    "kill fit": "save snapshot, before",
}
LOST = ("join store deleted", "snapshots deleted")
#: Both kinds of growth, three kills of the join and a second join; the broker lives on for other tests.
PLACED, RESULTS_BETWEEN = 5, 40
MODEL_FAULTS = ("model: down", "model: truncated body")


def test_kills_at_drawn_steps_break_no_promise(broker: LocalBroker, tmp_path: Path) -> None:
    """Router, join and fit die beside each other, each at five of its steps, then join and fit lose their files.

    At last labels come by five ways of hashing, while partitions are added and joins die, come and go. All is there
    once and nothing twice, and the versions are those of an undisturbed fold.
    """
    kills = [replace(entry, times=KILLS) for entry in ENTRIES if entry.group == "kills"]
    lost = [replace(entry, times=1, group="kills") for entry in ENTRIES if entry.name in LOST]
    kind = placement.placement(RESULTS_BETWEEN)
    placed = [replace(entry, times=PLACED, kind=kind, group="kills") for entry in ENTRIES if entry.name == "placement"]
    rows = run(broker, tmp_path, kills + lost + placed, SEED)
    assert [row.findings for row in rows] == [[]] * 6, f"seed {SEED}"
    assert [episode for row in rows for episode in row.unrecovered] == []
    assert [len(row.episodes) for row in rows] == [KILLS] * 3 + [1] * 2 + [PLACED]
    assert [row.dead_letters for row in rows] == [0] * 6
    figures = rows[-1].figures
    assert figures["records forwarded"] == figures["records misplaced"] > 0
    assert figures["records forwarded twice"] == 0
    assert figures["partitions of feedback"] == 2 * PARTITIONS
    struck = {row.kind: " ".join(episode.what for episode in row.episodes) for row in rows}
    assert [kind for kind, step in COMMITTED.items() if step not in struck[kind]] == []


def test_lost_model_servers_break_no_promise(broker: LocalBroker, tmp_path: Path) -> None:
    """Servers that are down or break off lose no query, and move no belief."""
    faults = [replace(entry, times=1) for entry in ENTRIES if entry.name in MODEL_FAULTS]
    rows = run(broker, tmp_path, faults, SEED)
    assert {row.kind: row.findings for row in rows} == {name: [] for name in MODEL_FAULTS}, f"seed {SEED}"
    assert [episode for row in rows for episode in row.unrecovered] == []
