"""Whatever valid events say, the core neither raises nor forgets how to count."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from functools import cache

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recalibrator.core import Recalibrator
from schemas import Command, LabelledExample, OutcomeCounts, TrafficSummary, VersionTraffic
from schemas.event import MAX_INTEGER
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, drive, settings, typo_world
from tests.support.cores import driven, in_force

HUGE = MAX_INTEGER
WORLD = typo_world(1_200, 600, seed=16)
instants = st.one_of(
    st.integers(-40 * 86_400, 86_400).map(lambda s: START + timedelta(seconds=s)),
    st.sampled_from(
        [datetime(1970, 1, 1, tzinfo=UTC), START, START + timedelta(days=9_000), datetime(2999, 12, 31, tzinfo=UTC)]
    ),
)
COUNTED = ("queries", "escalated", "small_failed", "degraded", "labels_requested", "small_calls", "large_calls")
SUMMED = ("cost_sequential", "cost_paper", "small_latency_s", "large_latency_s")
counts = st.one_of(st.integers(0, 12), st.just(HUGE))
units = st.one_of(st.sampled_from([0.0, 1.0, 5e-324, 1.0 - 2**-53]), st.floats(0.0, 1.0))
grids = st.sampled_from([GridSpec(), GridSpec(cells=2), GridSpec(cells=4_096, low=1e-300, high=0.6)])


@st.composite
def outcomes(draw: st.DrawFn, gold: int) -> OutcomeCounts:
    predicted = draw(counts)
    return OutcomeCounts(true_positives=draw(st.integers(0, min(gold, predicted))), predicted=predicted)


@st.composite
def labels(draw: st.DrawFn) -> LabelledExample:
    gold = draw(counts)
    large = draw(st.none() | outcomes(gold))
    return LabelledExample(
        query_id=f"h-{draw(st.integers(0, 60))}",
        workload="w",
        uncertainty=draw(st.none() | units),
        error_probability=draw(st.none() | units),
        calibration_version=draw(st.none() | st.just(HUGE)),
        small_exact=draw(st.booleans()),
        small=draw(outcomes(gold)),
        large=large,
        gold_count=gold,
        large_probability=draw(units),
        label_probability=draw(units),
        label_requested=draw(st.sampled_from([True, True, False])),
        reason=draw(st.sampled_from(["threshold", "exploration", "kept", "degraded", "small_failed", "cold_start"])),
        agree=draw(st.none() | st.booleans()),
        routed_at=draw(instants),
        labelled_at=draw(instants),
        revision=draw(st.one_of(st.integers(1, 3), st.just(HUGE))),
        retracted=draw(st.booleans()),
    )


@st.composite
def summaries(draw: st.DrawFn) -> TrafficSummary:
    grid = draw(grids)
    cells = sorted(draw(st.sets(st.integers(0, grid.cells - 1), max_size=6)))
    agreeing = [draw(counts) for _ in cells]
    pairs = [min(HUGE, a + draw(counts)) for a in agreeing]
    amounts = st.one_of(st.floats(0.0, 1e3), st.just(float(HUGE)), st.just(5e-324))
    part = VersionTraffic(
        calibration_version=draw(st.none() | st.integers(1, 5)),
        cell=tuple(cells),
        count=tuple(min(HUGE, p + draw(counts)) for p in pairs),
        pairs=tuple(pairs),
        agreeing=tuple(agreeing),
        pairs_explored=(0,) * len(cells),
        **{name: draw(counts) for name in COUNTED},
        **{name: draw(amounts) for name in SUMMED},
    )
    return TrafficSummary(
        workload="w", first_routed_at=draw(instants), last_routed_at=draw(instants), grid=grid, versions=(part,)
    )


REFIT = Command(workload="w", action="refit", issued_by="x", issued_at=START)
commands = st.builds(
    Command,
    workload=st.just("w"),
    action=st.sampled_from(["bootstrap", "activate", "pin", "unpin", "pause", "resume", "refit"]),
    version=st.sampled_from([1, 2, HUGE]),
    issued_by=st.just("x"),
    issued_at=instants,
)


@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(labels(), labels(), summaries(), commands), max_size=80), st.booleans())
def test_no_valid_event_breaks_the_core(events: list[LabelledExample | TrafficSummary | Command], cost: bool) -> None:
    """Versions and status validate themselves: neither holds a number that is not finite."""
    core = Recalibrator(settings() if cost else settings(cost=None))
    for event in (*events, REFIT):
        core.observe(event)
    core.status()
    state = core.snapshot()
    assert all(math.isfinite(value) for value in _numbers(json.loads(state)["state"]["_traffic"]))
    assert Recalibrator.restore(settings(), state).snapshot() == state


@hypothesis_settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.one_of(labels(), summaries()), min_size=1, max_size=15))
def test_a_running_core_takes_hostile_events_and_goes_on(events: list[LabelledExample | TrafficSummary]) -> None:
    core = Recalibrator.restore(settings(), _running())
    for event in (*events, REFIT):
        core.observe(event)
    drive(core, WORLD.draw, 300, first=900)
    assert in_force(core).decide(0.5, "q").error_probability is not None


@cache
def _running() -> bytes:
    return driven(WORLD, 900).snapshot()


def _numbers(value: object) -> list[float]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [float(value)] if isinstance(value, int | float) else [one for part in parts for one in _numbers(part)]
