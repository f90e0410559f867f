"""What has changed for a minute is announced once, to those who want it, and outlives a restart under its id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recalibrator.notify.outbox import Notice, Outbox
from schemas.settings import Webhook
from schemas.status import WorkloadStatus
from tests.support.api import plain_status

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ALL = Webhook.model_validate({"url": "http://127.0.0.1/all"})
ONLY_DRIFT = Webhook.model_validate({"url": "http://127.0.0.1/drift", "kinds": ["drift"], "workloads": ["photo"]})


def status(state: str = "active", drift: str = "ok", seconds: float = 0.0, **more: Any) -> WorkloadStatus:
    stands = {"workload": "photo", "state": state, "drift": {"state": drift}}
    return plain_status(**stands | {"updated_at": NOW + timedelta(seconds=seconds)} | more)


def waiting(outbox: Outbox, webhook: str = "all") -> list[Notice]:
    found = []
    while (notice := outbox.next(webhook)) is not None:
        found.append(notice)
        outbox.done(webhook, notice)
    return found


def outbox(most: int = 100) -> Outbox:
    return Outbox({"all": ALL, "drift": ONLY_DRIFT}, most, {})


def told(box: Outbox, *stood: tuple[float, str, str], **more: Any) -> int:
    """Tell how a workload stood from each second on, look every second until a minute after the last, count dropped."""
    dropped = 0
    for (second, state, drift), end in zip(stood, [*(at for at, _, _ in stood[1:]), stood[-1][0] + 61.0], strict=True):
        at = second
        while at < end:
            box.take(status(state, drift, at, **more), NOW + timedelta(seconds=at))
            dropped += box.settle(NOW + timedelta(seconds=at)).dropped.get("all", 0)
            at += 1.0
    return dropped


def said(notice: Notice) -> tuple[str, ...]:
    return tuple(one.now.value for one in notice.changes)


def box_of(*stood: tuple[float, str, str], **more: Any) -> Outbox:
    """An outbox that was told so."""
    box = outbox()
    told(box, *stood, **more)
    return box


def test_a_change_is_announced_once_and_its_end_too() -> None:
    first, second = waiting(box_of((0.0, "active", "ok"), (1.0, "stale", "ok"), (100.0, "active", "ok")))
    (began,), (ended,) = first.changes, second.changes
    assert (began.before and began.before.value, began.now.value, began.now.is_bad) == ("active", "stale", True)
    assert (ended.before, ended.now.is_bad) == (began.now, False)
    assert began.now.since == "2026-01-31T12:00:01Z"
    assert first.notice_id != second.notice_id


def test_what_lasts_under_a_minute_was_announced() -> None:
    """Twice within 12 seconds, and then that it was over."""
    for end in (17.0, 64.0):
        assert not waiting(box_of((0.0, "active", "ok"), (5.0, "active", "suspected"), (end, "active", "ok")))


def test_what_comes_and_goes_is_one_notice() -> None:
    flaps = [(20.0 * n, "active", "suspected" if n % 2 else "ok") for n in range(10)]
    assert [said(one) for one in waiting(box_of(*flaps, (200.0, "active", "ok")))] == [("suspected",), ("ok",)]


def test_several_changes_at_once_are_one_notice() -> None:
    """A red "drift ok → suspected" was followed by two changes of state within 12 seconds."""
    box = box_of((0.0, "active", "ok"), (5.0, "active", "drifted"), (12.0, "infeasible", "drifted"))
    assert [said(one) for one in waiting(box)] == [("infeasible", "drifted")]


def test_the_notice_said_that_all_was_well_of_a_drift() -> None:
    """A red "drift ok → suspected" came with "Version 246 holds its target"."""
    (notice,) = waiting(box_of((0.0, "active", "ok"), (1.0, "active", "suspected")))
    said_first = notice.headline
    assert (said_first.kind, said_first.act) == ("suspected", "Label what is requested: that settles it.")


def test_nothing_is_said_at_the_first_sight_of_what_is_well() -> None:
    """A start is no news; one that finds labels suspected is."""
    assert not waiting(box_of((0.0, "cold_start", "ok")))
    audit = {"suspected": "errors_where_answers_agree"}
    (notice,) = waiting(box_of((0.0, "active", "ok"), details={"label_audit": audit}))
    assert (notice.changes[0].kind, notice.changes[0].before) == ("labels", None)


def test_each_webhook_gets_the_kinds_and_workloads_it_wants() -> None:
    box = outbox()
    for name in ("photo", "other"):
        told(box, (0.0, "active", "ok"), (1.0, "stale", "drifted"), workload=name)
    assert [(one.workload, said(one)) for one in waiting(box, "drift")] == [("photo", ("drifted",))]
    assert {one.workload: said(one) for one in waiting(box)} == dict.fromkeys(("photo", "other"), ("stale", "drifted"))


def test_the_queue_of_a_webhook_is_bounded() -> None:
    box = outbox(most=3)
    dropped = told(box, *((61.0 * n, "stale" if n % 2 else "active", "ok") for n in range(10)))
    assert (dropped, len(waiting(box))) == (6, 3)


def test_all_is_well_was_announced_while_nothing_was_heard() -> None:
    """Of a fit that says nothing, since both models are down; once it speaks again and all is well, it is said."""
    box = box_of((0.0, "active", "ok"), (1.0, "stale", "ok"))
    assert len(waiting(box)) == 1
    for heard, settled, values in ((70.0, 140.0, []), (141.0, 141.0, [("active",)])):
        box.take(status("active", "ok", heard), NOW + timedelta(seconds=heard))
        box.settle(NOW + timedelta(seconds=settled))
        assert [said(one) for one in waiting(box)] == values
