"""What the benchmark of explanations calls right, and what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.explanations import experiment, stream
from benchmarks.explanations.report import write
from benchmarks.explanations.river_monitors import RIVALS, RiverMonitor
from benchmarks.explanations.scenarios import QUIET, RECORDED, SYNTHETIC, Scenario
from benchmarks.explanations.texts import Asked, Kind

MADE = {"command": "c", "commit": "0", "machine": "m", "python": "3", "day": "2026-01-31", "seed": 31}


_ROW = {
    "scenarios": 2,
    "noticed": 2,
    "mean_delay": 300.0,
    "quiet": [1, 0],
    "quiet_queries": 1_000,
    "us_by_summary": 1_500.0,
    "kilobytes_200_series": 12.0,
    "restart": True,
}


@pytest.fixture(autouse=True)
def scripted_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few texts of each kind answered by a script, since the model takes its time."""

    def asked(kind: Kind, count: int) -> tuple[Asked, ...]:
        made = {"capitals": "CANON {} AT NIGHT", "german": "suche fotos mit canon {}"}.get(kind, "canon {} at night")
        answers = ({"camera": "Canon" if number % 2 else None} for number in range(20))
        return tuple(Asked(made.format(f"m{number}"), dict(one), number / count) for number, one in enumerate(answers))

    monkeypatch.setattr(stream, "asked", asked)


def test_the_cause_of_a_shift_is_named_and_counted_right() -> None:
    """A shift to capitals in one segment is right with its trait and its segment, and soon."""
    scenario = Scenario("capitals", "letter_case", "capitals", 0.5, source="app")
    found = experiment.one_stream(scenario, stream.Plan(8_000, 5_000, 5))
    assert (found.named, found.segment, found.is_right, found.early) == ("letter_case", "app", True, 0)
    assert found.delay is not None
    assert 0 < found.delay <= 1_000


def test_a_stream_without_a_shift_is_called_quiet() -> None:
    found = experiment.one_stream(QUIET, stream.Plan(8_000, 8_000, 6))
    assert (found.named, found.is_right, found.early, found.delay) == ("", False, 0, None)


def test_equal_seeds_draw_equal_streams() -> None:
    plan = stream.Plan(600, 300, 9, in_bursts=True)
    scenario = SYNTHETIC[0]
    one, other = ([event.to_json() for _, event in stream.events(scenario, plan)] for _ in range(2))
    assert one == other


def test_every_scenario_has_a_name_and_a_cause_of_its_own() -> None:
    scenarios = (*RECORDED, *SYNTHETIC)
    assert len({one.name for one in scenarios}) == len(scenarios)
    assert all(one.cause for one in scenarios)


def test_the_page_counts_what_was_right(tmp_path: Path) -> None:
    """The page gives the share of right explanations, the quiet streams and the cost."""
    right = {"scenario": "capitals", "seed": 31, "early": 0, "named": "letter_case", "segment": "", "is_right": True}
    missed = {"scenario": "typos", "seed": 31, "early": 1, "named": "", "segment": "", "is_right": False}
    results = {
        "outcomes": [
            {**right, "delay": 250, "explained": 0.9, "sentence": "capitals are more frequent."},
            {**missed, "delay": None, "explained": None, "sentence": ""},
        ],
        "quiet": {"as drawn": {"queries": 1_000, "explanations": 0, "sentences": []}},
        "cost": dict.fromkeys(
            (
                "join_us_by_query",
                "series",
                "us_by_summary",
                "status_us",
                "summary_bytes",
                "of_them_profiles",
                "kilobytes_200_series",
                "snapshot_kilobytes",
            ),
            12.0,
        ),
        "beside_river": [
            {**_ROW, "test": "the product", "right": 2, "early": 0},
            {**_ROW, "test": "river ADWIN", "right": 2, "early": 3},
        ],
    }
    write(results, MADE, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "**Right: 1 of 2 (50%).**" in page
    assert "| capitals | 1 of 1 | letter_case | 250 | 90% |" in page
    assert "| typos | 0 of 1 | nothing | – | – |" in page
    assert "| river ADWIN | 2 of 2 | 3 | 300 (2 named) | 100, 0 (of 1,000) | 1.5 ms | 12 kB | yes |" in page
    assert "None of river's tests names more causes rightly, or as many with fewer false explanations." in page
    assert (tmp_path / "results.json").exists()


def test_river_sees_what_the_product_does() -> None:
    """On a plain shift ADWIN names the same trait; a copy of its detectors goes on alike."""
    scenario = Scenario("capitals", "letter_case", "capitals", 0.5)
    plan = stream.Plan(6_500, 4_500, 5)
    rival = RIVALS[1]
    found = experiment.one_stream(scenario, plan, lambda: RiverMonitor(rival))
    assert (found.named, found.is_right, found.early) == ("letter_case", True, 0)
