"""A headline stands for a minute unless something graver comes; what is over says so and asks for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.api.read_model.headlines import HOLD, Recoveries, Shown, shown
from recalibrator.api.read_model.version_lines import HELD, escalating_since, has_held, version_line
from recalibrator.headlines.rules import KINDS, OBSERVED, gravity, headline
from schemas.status import Headline, ModelHealth, OutageStatus
from tests.support.versions import sealed_version
from tests.support.workload_statuses import DEAR, DOWN, NOW, UP, curve, facts, router, status


def found(kind: str, severity: str = "bad", text: str = "") -> Headline:
    said = text or kind
    return Headline.model_validate(
        {"kind": kind, "severity": severity, "cause": said, "effect": "x", "act": "Do.", "sentence": f"{said}: x."}
    )


def over(seen: Iterable[tuple[float, Headline]]) -> list[Shown]:
    """Show what is found at these seconds, one after the other."""
    steps: list[Shown] = []
    for second, one in seen:
        steps.append(shown(steps[-1] if steps else None, one, NOW + timedelta(seconds=second)))
    return steps


def test_a_graver_one_comes_at_once_and_a_lesser_one_waits() -> None:
    steps = over([(0.0, found("dear")), (1.0, found("small_worse")), (2.0, found("dear")), (3.0, found("kafka"))])
    assert [one.headline.kind for one in steps] == ["dear", "small_worse", "small_worse", "kafka"]


def test_what_is_over_no_longer_asks_for_an_act() -> None:
    well = found("well", "good")
    steps = over([(0.0, found("kafka")), (20.0, well), (30.0, well), (61.0, well)])
    assert [one.headline.severity for one in steps] == ["bad", "calm", "calm", "good"]
    assert (steps[1].headline.act, steps[1].headline.sentence) == ("", "kafka: this is over since 12:00:20 UTC.")
    assert steps[2].headline == steps[1].headline


def test_what_comes_back_within_the_minute_is_not_over() -> None:
    steps = over([(0.0, found("outage")), (5.0, found("well", "good")), (9.0, found("outage"))])
    assert steps[-1].headline == steps[0].headline


def test_what_a_person_commands_shows_at_once() -> None:
    assert over([(0.0, found("dear")), (1.0, found("held", "calm"))])[-1].headline.kind == "held"


def test_numbers_of_a_conclusion_stand_still_for_a_minute_too() -> None:
    steps = over((at, found("dear", text=cost)) for at, cost in ((0.0, "3.98"), (9.0, "3.99"), (60.0, "4")))
    assert [one.headline.cause for one in steps] == ["3.98", "3.98", "4"]


@given(st.lists(st.tuples(st.floats(0.1, 20.0), st.sampled_from([kind for kind in KINDS if kind != "held"]))))
def test_no_lesser_headline_within_a_minute_of_a_worrying_one(steps: list[tuple[float, str]]) -> None:
    second, before = 0.0, None
    for wait, kind in steps:
        second += wait
        now = NOW + timedelta(seconds=second)
        after = shown(before, found(kind), now)
        if before is not None and gravity(after.found) > gravity(before.found):
            assert now - before.at >= HOLD
        before = after


def test_a_model_that_is_back_is_over_though_the_version_is_dear() -> None:
    """Services observe an outage themselves: once the model answers again, no headline goes on calling it down."""
    down = headline(status(routers=(router(large=DOWN, small=UP),)), facts())
    dear = headline(status(frontier=curve(0.994), version=DEAR), facts())
    assert down.kind in OBSERVED
    assert "this is over" in over([(0.0, down), (5.0, dear)])[-1].headline.sentence


def test_a_jump_lasts_since_the_first_version_that_made_it() -> None:
    made = [version_line(sealed_version(version=n, created_at=NOW + timedelta(seconds=n))) for n in range(1, 6)]
    lines = [replace(one, escalation_rate=rate) for one, rate in zip(made, (0.5, 0.2, 0.5, 0.6, 0.5), strict=True)]
    assert escalating_since(lines[::-1], 0.4) == lines[2].created_at
    assert escalating_since(lines[::-1], 0.55) is None


def test_no_roll_back_to_a_version_of_a_minute_ago() -> None:
    """Half a minute after the small model got worse, no detector had alarmed yet, and the act was to roll back."""
    line, next_line = (version_line(sealed_version(version=n, created_at=NOW)) for n in (6, 7))
    assert not has_held(line, NOW + timedelta(minutes=1))
    assert has_held(line, NOW + HELD)
    assert not has_held(replace(line, is_sound=False), next_line.created_at + HELD)


class Seen(NamedTuple):
    """What a page knows at a second: the share of failed calls by the fit, and since when the server has been up."""

    second: float
    share: float
    up_at: float | None


def back(*seen: Seen, began: float | None = 0.0) -> list[bool]:
    """Return whether the small model's server counts as back, at each of these seconds of an outage that ``began``."""
    recoveries, found = Recoveries(), []
    for one in seen:
        up_since = None if one.up_at is None else NOW + timedelta(seconds=one.up_at)
        server = ModelHealth(state="down" if up_since is None else "up", up_since=up_since)
        now = NOW + timedelta(seconds=one.second)
        told = status(routers=(router(small=server, large=UP),), outage=OutageStatus(small_failing=one.share))
        since = None if began is None else NOW + timedelta(seconds=began)
        found.append("small" in recoveries.of(told, since, now))
    return found


def test_a_server_is_back_as_soon_as_routers_say_so() -> None:
    """Results of the outage still come in for a while, and hours without traffic may follow."""
    late = (Seen(41, 0.9, 40), Seen(50, 0.95, 40), Seen(70, 0.8, 40), Seen(7_000, 0.8, 40), Seen(7_001, 0.79, 40))
    assert back(Seen(30, 0.9, None), *late) == [False, True, True, True, True, True]


def test_a_server_that_goes_on_failing_calls_is_named_again() -> None:
    seen = (Seen(45, 0.9, 40), Seen(130, 0.91, 40), Seen(140, 0.91, 40), Seen(150, 0.9, 40), Seen(160, 0.95, 160))
    assert back(*seen) == [True, False, False, True, True]


def test_a_server_that_was_never_away_is_not_back() -> None:
    """It fails calls though it answers: since the fit has seen it, it has not come back."""
    assert back(Seen(10, 0.4, -9_000), Seen(20, 0.3, -9_000)) == [False, False]


def test_an_outage_that_is_named_late_is_over_all_the_same() -> None:
    assert back(Seen(22, 0.5, 5), began=20) == [True]


def test_one_router_that_misses_a_server_keeps_it_away() -> None:
    up, away = ModelHealth(state="up", up_since=NOW), ModelHealth(state="down")
    told = status(routers=(router("a", small=up), router("b", small=away)), outage=OutageStatus(small_failing=0.5))
    assert Recoveries().of(told, None, NOW) == frozenset()
