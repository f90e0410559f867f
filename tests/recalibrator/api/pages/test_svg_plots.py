"""The last hours in a line each: what is drawn, what is said in words, throughput from counts, traffic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from recalibrator.api.pages.panels import traffic
from recalibrator.api.pages.svg_plots import sparklines, throughput
from recalibrator.api.read_model.history import History, HistoryPoint, Served
from schemas.status import HappeningEvent
from tests.support.workload_statuses import status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def counts(queries: int) -> Served:
    return Served(queries, 0, 0, queries, 0, 0.05 * queries, 0.0)


def points(*counted: tuple[float, Served]) -> list[HistoryPoint]:
    """A history with these counts, each so many minutes before now."""
    history = History()
    for minutes, served in counted:
        at, values = NOW - timedelta(minutes=minutes), {name: getattr(served, name) for name in Served.__slots__}
        history.add_status(status(updated_at=at, details={"served": values}))
    return list(history.points())


def answered(rates: list[tuple[float, float]]) -> float:
    """The queries behind rates of which each holds for half an hour."""
    return sum(rate for _, rate in rates[1:]) * 1_800.0


@pytest.mark.parametrize(("known", "queries"), [((1_000, 1_500, 4_000), 3_000), ((9_000, 60, 90), 90)])
def test_throughput_adds_up_to_the_queries_answered(known: tuple[int, ...], queries: int) -> None:
    """Where counts begin anew, traffic is not negative."""
    rates = throughput(points(*zip((60, 30, 0), map(counts, known), strict=True)))

    assert min(rate for _, rate in rates) >= 0.0
    assert answered(rates) == pytest.approx(queries)


def test_no_line_runs_across_two_minutes_without_a_report() -> None:
    """The broker was away from minute 12 to minute 10: nothing was answered, and no flat line says that all went on."""
    told = [minute for minute in (n / 4.0 for n in range(80, -1, -1)) if not 10.0 < minute < 12.0]
    seen = points(*((minute, counts(int(6_000 - 240 * minute))) for minute in told))
    for line in sparklines(seen, None, NOW)[1:]:
        assert line.drawing.count('class="silent"') == 1
        assert line.drawing.count("h.01") == 2, "two strokes, each with its beginning"
        assert "nothing was reported for 2 minutes" in line.drawing


def test_a_line_ends_where_reports_end() -> None:
    """Silent for an hour: the line stops there, and does not stand at the right edge as if that were now."""
    quality = sparklines(points(*((minute, counts(100)) for minute in range(180, 59, -2))), None, NOW)[1]
    ends = [float(place.split(" ")[0]) for place in quality.drawing.partition('class="line" d="')[2].split("L")[1:]]

    assert max(ends) == pytest.approx(240.0 * 2 / 3, abs=2.0)


def test_what_happened_is_marked_on_every_line() -> None:
    content = {"workload": "photo", "kind": "outage", "sentence": "The <large> fails", "is_bad": True}
    happened = [HappeningEvent(at=NOW - timedelta(minutes=minutes), **content) for minutes in (540, 20)]
    moved = {NOW - timedelta(minutes=5): "Version 9 escalates 60 %"}
    for line in sparklines(points((60, counts(1)), (30, counts(9)), (0, counts(20))), None, NOW, happened, moved):
        assert line.drawing.count('class="mark') == 2
        assert 'class="mark fault"' in line.drawing
        assert "<title>The &lt;large&gt; fails</title>" in line.drawing


def test_a_line_says_in_words_what_it_shows() -> None:
    history = History()
    for minutes, f1, drift in ((600, 0.5, "ok"), (120, 0.93, "drifted"), (60, 0.9, "drifted"), (0, 0.92, "ok")):
        at, quality = NOW - timedelta(minutes=minutes), {"estimate": f1, "lower": f1 - 0.01, "upper": f1 + 0.01}
        history.add_status(status(updated_at=at, micro_f1=quality, drift={"state": drift}))
    line, *_ = sparklines(history.points(), 0.91, NOW)

    assert (line.latest, line.between) == ("0.920", "0.900 to 0.930"), "what is older than six hours is left out"
    assert 'role="img" aria-label="micro-F1: 0.920, 0.900 to 0.930"' in line.drawing
    assert 'class="goal"' in line.drawing
    assert line.drawing.count('class="drift"') == 2


def test_before_there_are_two_points_nothing_is_drawn() -> None:
    for seen in ([], points((0, counts(5))), points((500, counts(5)), (400, counts(9)))):
        for one in sparklines(seen, 0.9, NOW):
            assert (one.between, one.drawing) == ("nothing to draw yet", "")


def test_traffic_is_counted_over_five_minutes() -> None:
    """An even second of two queries; then silence, which is no traffic and keeps the time of the last query."""
    busy = points((20, counts(0)), (10, counts(1_200)), (0, counts(2_400)))
    silent = points((20, counts(0)), (10, counts(1_200)), (7, counts(1_200)), (0, counts(1_200)))

    assert traffic(busy, NOW).per_second == pytest.approx(4.0)
    assert traffic(silent, NOW)[:2] == (0.0, NOW - timedelta(minutes=10))
    assert traffic([], NOW) == (None, None, None, None)
