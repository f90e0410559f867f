"""What versions say of early stop: nothing until lengths are known, then when, and for which share of queries."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.fit.publish.early_stopping import EarlyStopping
from schemas import CalibrationVersion, TrafficSummary
from schemas.early_stop import EarlyStop
from tests.support.cascade_stream import drive, settings, typo_world

QUERIES = 3_000
WORLD = typo_world(2 * QUERIES, drift_at=30 * QUERIES)
STOPS: dict[str, Any] = {"early_stop": {"full_share": 0.4}}


class Streaming(Recalibrator):
    """A core whose routers say how long answers are, and how many calls were stopped."""

    length = 40

    def observe(self, event: Observation) -> CalibrationVersion | None:
        if isinstance(event, TrafficSummary):
            parts = tuple(
                part.model_copy(update={"length": (self.length,), "lengths": (part.queries,)})
                for part in event.versions
            )
            event = event.model_copy(update={"versions": parts})
        return super().observe(event)


def test_versions_say_when_to_stop_once_lengths_are_known() -> None:
    """With the share that runs in full, under their digest, and again after a restart."""
    core = Streaming(settings(**STOPS))
    run = drive(core, WORLD.draw, QUERIES)
    latest = run.versions[-1][1]
    assert latest.early_stop == EarlyStop(longest=40, full_share=0.4)
    assert CalibrationVersion.from_json(latest.to_json()) == latest
    restored = Streaming.restore(settings(**STOPS), core.snapshot())
    assert restored._published.early_stop == latest.early_stop
    status = core.status().early_stop
    assert status is not None
    assert (status.longest, status.full_share, status.stopped_share) == (40, 0.4, 0.0)


def test_without_lengths_nothing_is_stopped() -> None:
    """Routers of a former release count none."""
    run = drive(Recalibrator(settings(**STOPS)), WORLD.draw, QUERIES)
    assert run.versions
    assert all("early_stop" not in version.model_dump() for _, version in run.versions)


def test_where_it_is_not_configured_versions_stay_as_they_were() -> None:
    run = drive(Streaming(settings()), WORLD.draw, QUERIES)
    assert run.versions
    assert all("early_stop" not in version.model_dump() for _, version in run.versions)
    assert Streaming(settings()).status().early_stop is None


def test_longer_answers_are_worth_a_version() -> None:
    """A call must not be stopped by what answers used to be; small changes wait for the next version."""
    core = Streaming(settings(**STOPS))
    drive(core, WORLD.draw, QUERIES)
    core.length = 80
    run = drive(core, WORLD.draw, QUERIES, first=QUERIES)
    assert any(version.evidence.trigger == "early_stop" for _, version in run.versions)
    assert run.versions[-1][1].early_stop == EarlyStop(longest=80, full_share=0.4)


@pytest.mark.parametrize(
    ("in_force", "offered", "is_news"),
    [
        (None, None, False),
        (None, (40, 0.2), True),
        ((40, 0.2), None, False),
        ((40, 0.2), (44, 0.2), False),
        ((40, 0.2), (45, 0.2), True),
        ((40, 0.2), (40, 0.3), True),
    ],
)
def test_what_is_worth_a_version(
    in_force: tuple[int, float] | None, offered: tuple[int, float] | None, is_news: bool
) -> None:
    former, new = (None if one is None else EarlyStop(longest=one[0], full_share=one[1]) for one in (in_force, offered))
    assert EarlyStopping(settings(**STOPS)).is_news(former, new) is is_news


def test_no_length_above_the_longest_completion_is_expected() -> None:
    """Lengths are rounded up where they are counted."""
    core = Streaming(settings(**STOPS, max_tokens=33))
    run = drive(core, WORLD.draw, QUERIES)
    assert run.versions[-1][1].early_stop == EarlyStop(longest=33, full_share=0.4)


def test_audits_are_drawn_among_queries_in_full() -> None:
    """Of the pairs that are counted, the share that is audited is that of the version over the share in full."""
    core = Streaming(settings(**STOPS))
    drive(core, WORLD.draw, QUERIES)
    current = core.current
    assert current is not None
    core._published._versions[current.version] = current.model_copy(update={"audit_probability": 0.1})
    assert core._published.audit_probabilities() == {current.version: 0.25}
