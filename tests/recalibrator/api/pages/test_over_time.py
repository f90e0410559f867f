"""Charts over time: the range that the address names, throughput from counts, latency, and each one in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from recalibrator.api.pages.svg_over_time import latency_plot, throughput, throughput_plot
from recalibrator.api.pages.time_range import DEFAULT_RANGE, RANGES, TimeRange, Window
from recalibrator.api.pages.traffic import traffic
from recalibrator.api.read_model.history import History, HistoryPoint, Served
from recalibrator.api.read_model.latency_history import LatencyPoint
from schemas.status import ModelHealth, RouterStatus, VersionInUse
from tests.support.api import START as API_START
from tests.support.api import WORKLOAD, make_api
from tests.support.workload_statuses import status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = Window(NOW - timedelta(hours=1), NOW)


def counts(queries: int, large: int = 0, degraded: int = 0) -> Served:
    small = queries - large - degraded
    return Served(small, large, degraded, queries, large + degraded, 0.05 * queries, 0.5 * (large + degraded))


def points(*counted: tuple[float, Served]) -> list[HistoryPoint]:
    """A history with these counts, each so many minutes before now."""
    history = History()
    for minutes, served in counted:
        at, values = NOW - timedelta(minutes=minutes), {name: getattr(served, name) for name in Served.__slots__}
        history.add_status(status(updated_at=at, details={"served": values}))
    return list(history.points())


def test_throughput_adds_up_to_the_queries_answered() -> None:
    """Three thousand queries within the hour, a third of them by the large model: the areas are these numbers."""
    known = [(p.at, p.served) for p in points((90, counts(500)), (60, counts(1_000)), (0, counts(4_000, large=1_000)))]
    edges, rates = throughput([(at, one) for at, one in known if one is not None], HOUR)
    areas = {name: round(float(np.sum(rate * np.diff(edges)))) for name, rate in rates.items()}

    assert areas == {"small": 2_000, "large": 1_000, "degraded": 0}


def test_counts_that_begin_anew_are_no_negative_traffic() -> None:
    known = [(NOW - timedelta(minutes=60), counts(9_000)), (NOW - timedelta(minutes=30), counts(60)), (NOW, counts(90))]
    edges, rates = throughput(known, HOUR)

    assert min(rates["small"]) >= 0.0
    assert round(float(np.sum(rates["small"] * np.diff(edges)))) == 90


def test_a_quiet_hour_is_told_from_a_service_without_history() -> None:
    quiet = points((180, counts(500)), (120, counts(1_000)))

    assert "nothing came in during this time" in throughput_plot(quiet, HOUR)
    assert "no traffic yet" in throughput_plot([], HOUR)


def test_the_charts_say_in_words_what_they_show() -> None:
    drawn = throughput_plot(points((60, counts(0)), (0, counts(3_600, large=900))), HOUR)
    slow = [LatencyPoint(NOW - timedelta(minutes=m), 0.4, 31.0 if m == 30 else 2.0) for m in (50, 30, 10)]
    latency = latency_plot({"small": (), "large": slow}, [], HOUR)

    assert 'role="img"' in drawn
    assert "1 a second at the end, 1 at most: small 75%, large 25%, degraded 0%." in drawn
    assert "Large: median 0.4 s and 99th percentile 2 s at the end, 31 s at most." in latency
    assert "no call of the small model" in latency


@pytest.mark.parametrize("name", RANGES)
def test_a_range_in_the_address_is_the_one_shown(name: str) -> None:
    """The link of the range is marked, the heading names it, and the page of the only workload takes it as well."""
    api = make_api()
    for path in (f"/workloads/{WORKLOAD}", "/"):
        page = api.client.get(path, params={"range": name}).text
        assert re.findall(r'range=(\w+)#plots" aria-current="true"', page) == [name]
        assert f"Over {TimeRange(name).words}" in page


@pytest.mark.parametrize("given", ["", "8d", "<script>"])
def test_an_address_that_names_no_range_shows_the_default(given: str) -> None:
    page = make_api().client.get(f"/workloads/{WORKLOAD}", params={"range": given}).text
    assert f"Over {TimeRange(DEFAULT_RANGE).words}" in page
    assert "<script>" not in page


def test_a_window_begins_no_earlier_than_what_is_known() -> None:
    known = NOW - timedelta(minutes=20)

    assert TimeRange("6h").window(NOW, known) == Window(known, NOW)
    assert TimeRange("1h").window(NOW, NOW - timedelta(days=3)) == HOUR
    assert TimeRange("all").window(NOW, NOW - timedelta(days=3)).begin == NOW - timedelta(days=3)
    assert TimeRange("all").window(NOW, None).begin < NOW


def test_traffic_is_counted_over_five_minutes() -> None:
    """An even second of two queries; then silence, which is no traffic and keeps the time of the last query."""
    busy = points((20, counts(0)), (10, counts(1_200)), (0, counts(2_400)))
    silent = points((20, counts(0)), (10, counts(1_200)), (7, counts(1_200)), (0, counts(1_200)))

    assert traffic(busy, NOW).per_second == pytest.approx(4.0)
    assert traffic(silent, NOW) == (0.0, NOW - timedelta(minutes=10))
    assert traffic([], NOW) == (None, None)


def test_the_page_shows_latencies_of_routers_that_reported() -> None:
    """From the topic of the routers to words on the page, for each of the workload's servers."""
    api = make_api()
    for second in range(0, 600, 60):
        report = RouterStatus(
            instance_id="router-1",
            started_at=API_START,
            updated_at=API_START + timedelta(seconds=second),
            ready=True,
            versions={WORKLOAD: VersionInUse(version=None)},
            models={
                WORKLOAD: {"large": ModelHealth(state="up", calls=second + 1, latency_s={"p50": 0.5, "p99": 2.5})},
                "not configured here": {"small": ModelHealth(state="up", calls=1, latency_s={"p50": 9.0, "p99": 9.0})},
            },
        )
        api.cache.take("ucci.routers", b"router-1", report.to_json())
    api.clock.elapsed_s = 600.0

    assert "Large: median 0.5 s and 99th percentile 2.5 s at the end" in api.client.get(f"/workloads/{WORKLOAD}").text
