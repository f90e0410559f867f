"""The benchmarks of speed: what they time is at rest, and what a plan makes of costs."""

from __future__ import annotations

import json

import pytest

from recalibrator.core import Recalibrator
from research.core import SETTINGS, Cascade
from research.scale import Costs, Sample, load, main, plan


def steady(began_s: float, per_s: float, cpu_share: float, until_s: float = 100.0) -> list[Sample]:
    """Return the samples of a process that works at one pace once it has begun, a sample every half second."""
    moments = [0.5 * number for number in range(int(2 * until_s) + 1)]
    return [Sample(at, int(per_s * max(at - began_s, 0.0)), cpu_share * max(at - began_s, 0.0)) for at in moments]


def test_a_rate_is_taken_while_all_routers_work() -> None:
    """The time before the last of them began counts neither as theirs nor as the broker's."""
    routers = [steady(0.0, 100.0, 0.5), steady(10.0, 100.0, 0.5)]
    found = load(routers, steady(0.0, 0.0, 0.2), records=10_000)
    assert (found.per_s, found.router_us, found.broker_us) == pytest.approx((200.0, 5_000.0, 1_000.0))


def test_the_plan_needs_no_broker(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page on operations names as its command prints the plan as JSON."""
    monkeypatch.setattr("sys.argv", ["scale", "--plan", "100000"])
    main()
    assert json.loads(capsys.readouterr().out)["needs"] == plan(100_000.0, Costs())


def test_timed_labels_agree_as_the_timed_traffic_does() -> None:
    """Traffic and the label of a query say the same of both answers: else the detector of agreement finds a drift."""
    cascade, core = Cascade(2_000), Recalibrator(SETTINGS)
    labels = [cascade.label(number) for number in range(2_000)]
    version = next(found for label in labels if (found := core.observe(label)) is not None)
    compared = 0
    for number, label in enumerate(labels):
        routed = cascade.routed(number, version)
        if routed.small is not None and routed.large is not None and label.agree is not None:
            assert (routed.small.entities == routed.large.entities) is label.agree
            compared += 1
    assert compared > 50
