"""Labels, traffic and maps of another uncertainty signal than the workload's do not count."""

from __future__ import annotations

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas import CalibrationMap, CalibrationVersion, Command, LabelledExample, TrafficSummary
from schemas.routed import Decision
from tests.support.cascade_stream import START, drive, settings, typo_world
from tests.support.recalibrator_events import routed

QUERIES = 2_000
WORLD = typo_world(2 * QUERIES, drift_at=10 * QUERIES)
ENTROPY = settings(uncertainty="entropy")


def measured_by(event: Observation, signal: str) -> Observation:
    """Return an event as if u in it had been measured another way."""
    if isinstance(event, LabelledExample):
        return event.model_copy(update={"signal": signal})
    if isinstance(event, TrafficSummary):
        parts = tuple(part.model_copy(update={"signal": signal}) for part in event.versions)
        return event.model_copy(update={"versions": parts})
    return event


class EntropyCore(Recalibrator):
    """A core whose stream comes from routers that measure entropy."""

    def observe(self, event: Observation) -> CalibrationVersion | None:
        return super().observe(measured_by(event, "entropy"))


class MixedCore(EntropyCore):
    """The same, where each event comes a second time from a router that measures the margin, upside down."""

    def observe(self, event: Observation) -> CalibrationVersion | None:
        version = super().observe(event)
        if isinstance(event, LabelledExample) and event.uncertainty is not None:
            turned = {"uncertainty": 1.0 - event.uncertainty, "query_id": f"{event.query_id} of old"}
            assert Recalibrator.observe(self, event.model_copy(update=turned)) is None
        elif isinstance(event, TrafficSummary):
            assert Recalibrator.observe(self, event) is None
        return version


def test_labels_of_two_signals_are_never_fitted_together() -> None:
    """A stream with labels of another signal among its own gives the very versions that its own alone give."""
    pure, mixed = EntropyCore(ENTROPY), MixedCore(ENTROPY)
    alone, among = drive(pure, WORLD.draw, QUERIES), drive(mixed, WORLD.draw, QUERIES)
    assert alone.versions
    assert [v.to_json() for _, v in among.versions] == [v.to_json() for _, v in alone.versions]
    assert {version.signal.kind for _, version in alone.versions} == {"entropy"}
    assert mixed.status().details["labels_of_other_signal"] == among.labels
    assert mixed.status().details["uncertainty_signal"] == "entropy"


def test_of_a_mixed_summary_only_the_workloads_signal_counts() -> None:
    """While routers restart one after the other, one join sees results of both signals, by one version even."""
    summarizer = TrafficSummarizer(settings(name="photo"))
    for number in range(40):
        signal = "entropy" if number % 4 == 0 else "token_margin"
        decision = Decision(escalated=True, reason="threshold", uncertainty=0.5, large_probability=1.0)
        summarizer.add(routed(number, signal=signal, decision=decision))
    summary = summarizer.take()
    assert summary is not None
    assert [(part.signal, part.queries) for part in summary.versions] == [("entropy", 10), ("token_margin", 30)]
    for signal, queries in (("entropy", 10), ("token_margin", 30)):
        core = Recalibrator(settings(name="photo", uncertainty=signal))
        core.observe(summary)
        assert core.status().queries == queries


@pytest.fixture(scope="module")
def learned() -> Recalibrator:
    core = Recalibrator(settings())
    assert drive(core, WORLD.draw, QUERIES).versions
    return core


def test_a_core_restored_under_another_signal_starts_cold(learned: Recalibrator) -> None:
    """Its next version lies above all former ones, and rests on labels of the new signal alone."""
    assert learned.current is not None
    core = EntropyCore.restore(ENTROPY, learned.snapshot())
    assert (core.current, core.trial, core.status().state) == (None, None, "cold_start")
    assert core.version_floor == learned.version_floor
    versions = drive(core, WORLD.draw, QUERIES, first=QUERIES).versions
    first = versions[0][1]
    assert first.version == learned.version_floor + 1
    assert (first.signal.kind, first.parent_version) == ("entropy", None)
    assert first.evidence.window_from is not None
    assert first.evidence.window_from > START


def test_a_pause_outlasts_a_change_of_signal_and_a_pin_does_not() -> None:
    core = Recalibrator(settings())
    drive(core, WORLD.draw, QUERIES)
    for action in ("pin", "pause"):
        core.observe(Command(workload="w", action=action, issued_by="ann", issued_at=START))
    said = Recalibrator.restore(ENTROPY, core.snapshot()).status().sentence
    assert "Paused since" in said
    assert "Pinned" not in said
    core.observe(Command(workload="w", action="resume", issued_by="ann", issued_at=START))
    restored = EntropyCore.restore(ENTROPY, core.snapshot())
    assert drive(restored, WORLD.draw, QUERIES, first=QUERIES).versions


@pytest.mark.parametrize("action", ["bootstrap", "activate", "pin"])
def test_a_map_of_another_signal_is_not_published(action: str) -> None:
    """Roll-back to a version of the former signal, or a bootstrap by its map, would mix two axes."""
    core = Recalibrator(ENTROPY)
    command = Command.model_validate(
        {
            "workload": "w",
            "action": action,
            "version": None if action == "bootstrap" else 3,
            "map": CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.5)),
            "uncertainty_threshold": 0.3,
            "issued_by": "ann",
            "issued_at": START,
        }
    )
    assert core.observe(command) is None
    assert "refused: its map is of the uncertainty signal token_margin" in str(core.status().details["last_command"])
    version = core.observe(command.model_copy(update={"signal": "entropy"}))
    assert version is not None
    assert version.signal.kind == "entropy"
