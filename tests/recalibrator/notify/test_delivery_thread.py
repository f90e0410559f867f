"""A change of state of a running recalibrator reaches a real webhook once, through failures and a restart."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from recalibrator.notify import delivery_thread, outbox
from schemas.settings import Settings
from tests.support.live_recalibrator import LiveRecalibrator, live_settings, new_cluster, running
from tests.support.waiting import wait_until
from tests.support.webhooks import Receiver, receiving


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_thread, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(outbox, "SETTLE", timedelta(0))


def settings(directory: Path, *receivers: Receiver) -> Settings:
    webhooks = {f"hook-{number}": {"url": one.url} for number, one in enumerate(receivers)}
    return live_settings(directory, notify={"webhooks": webhooks})


def pause(live: LiveRecalibrator, directory: Path) -> None:
    """Pause a workload whose first status, with version 1 in force, was seen."""
    live.bootstrap(0.2)
    wait_until(lambda: any(directory.rglob("notifications.json")), "the first status is known")
    live.command("pause")


def states(receiver: Receiver) -> list[str]:
    return [one.document["now"] for one in receiver.received if one.document["kind"] == "state"]


def test_a_change_of_state_reaches_its_webhook_once(tmp_path: Path) -> None:
    """Through a restart too: nothing is said twice, and what changed meanwhile is said."""
    cluster = new_cluster()
    with receiving() as receiver:
        chosen = settings(tmp_path, receiver)
        with running(chosen, cluster) as live:
            pause(live, tmp_path)
            wait_until(lambda: "paused" in states(receiver), "the webhook is notified")
        live.command("resume")
        live.command("pin")
        with running(chosen, cluster):
            wait_until(lambda: "pinned" in states(receiver), "what changed meanwhile is said")
        assert states(receiver).count("paused") == states(receiver).count("pinned") == 1
    ids = [one.headers["webhook-id"] for one in receiver.received]
    assert len(set(ids)) == len(ids)


def test_a_dead_receiver_delays_no_other_and_no_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One refuses for good, one redirects, nobody listens at the third: the fourth is notified, versions go on.

    No token of an address is logged.
    """
    with receiving(*[400] * 9) as refusing, receiving(*[302] * 9) as redirecting, receiving() as listening:
        chosen = settings(tmp_path, refusing, redirecting, Receiver(url="http://127.0.0.1:9/nobody"), listening)
        with running(chosen, new_cluster()) as live:
            pause(live, tmp_path)
            wait_until(lambda: "paused" in states(listening), "the one that listens is notified")
            metrics = live.service.metrics
            for hook in ("hook-0", "hook-1"):
                wait_until(
                    lambda hook=hook: (  # type: ignore[misc] # a default that mypy cannot infer
                        metrics.counts_by("outcome", "notifications", webhook=hook).get("refused", 0) >= 1
                    ),
                    "refused for good",
                )
            live.bootstrap(0.3)
            wait_until(lambda: (s := live.status()) is not None and s.calibration_version == 2, "a second version")
    logged = "".join(capsys.readouterr())
    assert ("not delivered" in logged, "secret-token" in logged) == (True, False)
    assert len(redirecting.received) == len({one.headers["webhook-id"] for one in redirecting.received})


def test_what_was_not_delivered_is_sent_after_a_restart(tmp_path: Path) -> None:
    """A process that ends while its receiver fails sends the same notice, under its id, at the next start."""
    cluster = new_cluster()
    with receiving(*[503, 429] * 5_000) as receiver:
        chosen = settings(tmp_path, receiver)
        with running(chosen, cluster) as live:
            pause(live, tmp_path)
            wait_until(lambda: len(receiver.received) >= 2, "another attempt")
            metrics = live.service.metrics
            assert metrics.counts_by("outcome", "notifications", webhook="hook-0").keys() == {"retried"}
        first, again = (one.headers["webhook-id"] for one in receiver.received[:2])
        assert first == again
        receiver.answers.clear()
        receiver.received.clear()
        with running(chosen, cluster):
            wait_until(lambda: "paused" in states(receiver), "the rest of what waited")
    ids = [one.headers["webhook-id"] for one in receiver.received]
    assert ids[0] == first
    assert len(set(ids)) == len(ids)
