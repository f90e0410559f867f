"""Each change of a workload is announced once, to those who want it, and outlives a restart under its id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recalibrator.notify.notices import Notice
from recalibrator.notify.outbox import Outbox
from schemas.settings import Webhook
from schemas.status import WorkloadStatus

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ALL = Webhook.model_validate({"url": "http://127.0.0.1/all"})
ONLY_DRIFT = Webhook.model_validate({"url": "http://127.0.0.1/drift", "kinds": ["drift"], "workloads": ["photo"]})


def status(state: str = "active", drift: str = "ok", seconds: float = 0.0, **more: Any) -> WorkloadStatus:
    content = {
        "workload": "photo",
        "state": state,
        "sentence": "As it stands.",
        "target": {"micro_f1": 0.9},
        "drift": {"state": drift},
        "updated_at": NOW + timedelta(seconds=seconds),
    }
    return WorkloadStatus.model_validate(content | more)


def waiting(outbox: Outbox, webhook: str = "all") -> list[Notice]:
    found = []
    while (notice := outbox.next(webhook)) is not None:
        found.append(notice)
        outbox.done(webhook, notice)
    return found


def outbox(most: int = 100) -> Outbox:
    return Outbox({"all": ALL, "drift": ONLY_DRIFT}, most)


def test_a_change_is_announced_once_and_its_end_too() -> None:
    box = outbox()
    for second, state in enumerate(("active", "stale", "stale", "stale", "active")):
        box.take(status(state, seconds=second), NOW)
    first, second_one = waiting(box)
    assert (first.before and first.before.value, first.now.value, first.now.is_bad) == ("active", "stale", True)
    assert (second_one.before, second_one.now.is_bad) == (first.now, False)
    assert len({first.notice_id, second_one.notice_id}) == 2


def test_the_same_change_later_is_another_notice() -> None:
    box = outbox()
    for second, state in enumerate(("active", "stale", "active", "stale")):
        box.take(status(state, seconds=second), NOW)
    assert len({notice.notice_id for notice in waiting(box)}) == 3


def test_nothing_is_said_at_the_first_sight_of_what_is_well() -> None:
    """A start is no news; one that finds labels suspected is."""
    box = outbox()
    assert not box.take(status("cold_start"), NOW).dropped
    assert not waiting(box)
    box = outbox()
    box.take(status(details={"label_audit": {"suspected": "errors_where_answers_agree"}}), NOW)
    (notice,) = waiting(box)
    assert (notice.kind, notice.before) == ("labels", None)


def test_each_webhook_gets_the_kinds_and_workloads_it_wants() -> None:
    box = outbox()
    box.take(status(), NOW)
    box.take(status("stale", "drifted", 1.0), NOW)
    box.take(status("stale", "drifted", 1.0, workload="other"), NOW)
    assert {(one.workload, one.kind) for one in waiting(box, "drift")} == {("photo", "drift")}
    assert len(waiting(box)) == 4


def test_what_waits_outlives_a_restart_under_its_id() -> None:
    before = outbox()
    before.take(status(), NOW)
    before.take(status("stale", seconds=1.0), NOW)
    after = outbox()
    after.load(before.state())
    assert not after.take(status("stale", seconds=9.0), NOW).is_changed
    assert [one.notice_id for one in waiting(after)] == [one.notice_id for one in waiting(before)]


def test_a_change_while_the_process_was_away_is_announced() -> None:
    before, after = outbox(), outbox()
    before.take(status(), NOW)
    after.load(before.state())
    after.take(status("infeasible", seconds=60.0), NOW)
    assert [one.now.value for one in waiting(after)] == ["infeasible"]


def test_the_queue_of_a_webhook_is_bounded() -> None:
    box = outbox(most=3)
    dropped = 0
    for second in range(10):
        dropped += box.take(status("stale" if second % 2 else "active", seconds=second), NOW).dropped.get("all", 0)
    assert (dropped, len(waiting(box))) == (6, 3)
