"""A request that arrives in the next transaction does no harm: the schedules by name (KAFKA-17754).

A connection breaks after EndTxn was sent, the client's second attempt is answered on another, and the first one, same
producer and same epoch, arrives while the next transaction is under way. Proxies, load balancers and brokers that stand
still do this. `python -m tests.faults.late_delivery` draws hundreds of such schedules.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults import late_schedules as late
from tests.faults.fault_points import Stage
from tests.faults.late_delivery import Scene, scene
from tests.faults.late_schedules import Schedule
from tests.support.proxied_broker import Proxied, proxied_broker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEED = 20260501
#: A schedule that the process's timing did not let happen is played again; the control until it does harm, since a
#: router that was slow may have begun an epoch anew by itself, and the broker then refuses what comes late.
ATTEMPTS = 12


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A broker behind a proxy."""
    with proxied_broker(tmp_path_factory.mktemp("kafka")) as made:
        yield made


@pytest.fixture(scope="module")
def router(proxied: Proxied, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A router that works under steady traffic; what befell it before is over."""
    with scene(proxied, tmp_path_factory.mktemp("router"), SEED, "router") as made:
        yield made


def harm(scene: Scene, schedule: Schedule) -> list[str]:
    """Play a schedule, and return what was found after it."""
    for _ in range(ATTEMPTS):
        outcome = scene.play(schedule)
        assert not outcome.is_stuck, outcome
        if outcome.findings or outcome.played.reached == late.STRUCK:
            break
    assert outcome.played.reached == late.STRUCK, outcome
    return [f"{finding.harm}: {finding.what}" for finding in outcome.findings]


#: By what the late request does; what is lost or doubled then, would the epoch not be raised.
SCHEDULES = {
    "lost: it commits offsets of results not written yet": late.LATE_COMMIT_BEFORE_RECORDS,
    "lost: it commits offsets alone, and the router dies before it writes the results": late.LATE_COMMIT_AND_KILL,
    "lost: it commits offsets alone, and the router gives up a producer that is silent": late.LATE_COMMIT_AND_SILENCE,
    "lost: it takes results back whose offsets follow": late.LATE_ABORT_AFTER_RECORDS,
    "doubled: it commits results alone, and the router dies before their offsets": late.LATE_COMMIT_AFTER_RECORDS,
    "doubled: it takes offsets back, and the router dies before it sends others": late.LATE_ABORT_AFTER_OFFSETS,
    "doubled: offsets of the transaction before come after those of this one": late.LATE_OFFSETS,
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_late_request_loses_and_doubles_no_results(router: Scene, schedule: Schedule) -> None:
    assert harm(router, schedule) == []


@pytest.mark.parametrize("struck", ["join", "fit"])
def test_a_late_commit_costs_no_label_and_no_version(
    proxied: Proxied, tmp_path_factory: pytest.TempPathFactory, struck: Stage
) -> None:
    """The join's examples and summaries; a version that was published twice has two numbers."""
    with scene(proxied, tmp_path_factory.mktemp(struck), SEED, struck) as made:
        assert harm(made, late.LATE_COMMIT_BEFORE_RECORDS) == []
        assert harm(made, late.LATE_COMMIT_AFTER_RECORDS) == []


def test_without_raised_epochs_results_are_lost_and_doubled(
    proxied: Proxied, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The negative control: the schedules find what they are there to find."""
    with scene(proxied, tmp_path_factory.mktemp("off"), SEED, "router", ("raised epoch",)) as router:
        for schedule, kind in ((late.LATE_COMMIT_BEFORE_RECORDS, "lost"), (late.LATE_COMMIT_AFTER_RECORDS, "doubled")):
            assert any(one.startswith(kind) for _ in range(ATTEMPTS) for one in harm(router, schedule))
