"""Labels, traffic and maps of answers to another prompt, of other models or in other fields do not count."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas import CalibrationMap, CalibrationVersion, Command, LabelledExample, Target, TrafficSummary
from schemas.costs import ModelCosts
from schemas.settings import WorkloadSettings
from tests.support import cascade_stream
from tests.support.cascade_stream import START, drive, typo_world
from tests.support.recalibrator_events import routed

QUERIES = 2_000
WORLD = typo_world(2 * QUERIES, drift_at=10 * QUERIES)


def settings(**changed: object) -> WorkloadSettings:
    """Return settings that name both models."""
    models = {role: {"base_url": "http://m/v1", "model": role} for role in ("small", "large")}
    return cascade_stream.settings(**models | changed)


OURS = settings()
REPHRASED = settings(prompt="Name what {text} says of cameras.")


def marked(event: Observation, mark: str | None) -> Observation:
    """Return an event as if its answers rested on something else."""
    if isinstance(event, LabelledExample):
        return event.model_copy(update={"basis": mark})
    if isinstance(event, TrafficSummary):
        parts = tuple(part.model_copy(update={"basis": mark}) for part in event.versions)
        return event.model_copy(update={"versions": parts})
    return event


class RephrasedCore(Recalibrator):
    """A core whose stream comes from routers with the other prompt."""

    def observe(self, event: Observation) -> CalibrationVersion | None:
        return super().observe(marked(event, REPHRASED.basis_mark))


class MixedCore(RephrasedCore):
    """The same, where each label comes a second time from a router with the former prompt, upside down."""

    def observe(self, event: Observation) -> CalibrationVersion | None:
        version = super().observe(event)
        if isinstance(event, LabelledExample) and event.uncertainty is not None:
            turned = {"uncertainty": 1.0 - event.uncertainty, "query_id": f"{event.query_id} of old"}
            assert Recalibrator.observe(self, marked(event.model_copy(update=turned), OURS.basis_mark)) is None
        elif isinstance(event, TrafficSummary):
            assert Recalibrator.observe(self, marked(event, OURS.basis_mark)) is None
        return version


def test_labels_of_two_prompts_are_never_fitted_together() -> None:
    """A stream with labels of the former prompt among its own gives the very versions that its own alone give."""
    pure, mixed = RephrasedCore(REPHRASED), MixedCore(REPHRASED)
    alone, among = drive(pure, WORLD.draw, QUERIES), drive(mixed, WORLD.draw, QUERIES)
    assert alone.versions
    assert [v.to_json() for _, v in among.versions] == [v.to_json() for _, v in alone.versions]
    assert {version.basis for _, version in alone.versions} == {REPHRASED.basis}
    assert mixed.status().details["labels_of_other_basis"] == among.labels


def test_of_a_mixed_summary_only_the_configured_prompt_counts() -> None:
    """While routers restart one after the other, one join sees results of both prompts, by one version even."""
    ours, other = settings(name="photo"), settings(name="photo", prompt="Else: {text}")
    summarizer = TrafficSummarizer(ours)
    for number in range(40):
        summarizer.add(routed(number, basis=(other if number % 4 == 0 else ours).basis_mark))
    summary = summarizer.take()
    assert summary is not None
    for configured, queries in ((other, 10), (ours, 30)):
        core = Recalibrator(configured)
        core.observe(summary)
        assert core.status().queries == queries


@pytest.fixture(scope="module")
def learned() -> Recalibrator:
    core = Recalibrator(OURS)
    assert drive(core, WORLD.draw, QUERIES).versions
    return core


def test_a_core_restored_under_another_prompt_starts_cold(learned: Recalibrator) -> None:
    """Its next version lies above all former ones, and rests on labels of the new prompt alone."""
    core = RephrasedCore.restore(REPHRASED, learned.snapshot())
    assert (core.current, core.trial, core.status().state) == (None, None, "cold_start")
    assert core.version_floor == learned.version_floor
    first = drive(core, WORLD.draw, QUERIES, first=QUERIES).versions[0][1]
    assert (first.version, first.basis) == (learned.version_floor + 1, REPHRASED.basis)
    assert first.evidence.window_from is not None
    assert first.evidence.window_from > START


@pytest.mark.parametrize(
    "changed",
    [
        {"fields": ("camera",)},
        {"max_tokens": 9},
        {"small": {"base_url": "http://s/v1", "model": "4b"}},
        {"large": {"base_url": "http://l/v1", "model": "27b"}},
    ],
)
def test_whatever_changes_the_answers_starts_cold(learned: Recalibrator, changed: dict[str, Any]) -> None:
    assert Recalibrator.restore(settings(**changed), learned.snapshot()).current is None


def test_a_file_that_names_no_models_takes_all_labels(learned: Recalibrator) -> None:
    """A recalibrator may do without; it cannot know what answers rest on, and its versions do not say."""
    core = Recalibrator.restore(cascade_stream.settings(), learned.snapshot())
    assert core.current == learned.current is not None
    versions = drive(RephrasedCore(cascade_stream.settings()), WORLD.draw, QUERIES).versions
    assert {version.basis for _, version in versions} == {None}
    assert all(b'"basis"' not in version.to_json() for _, version in versions)


def test_a_map_made_under_another_prompt_is_refused() -> None:
    """A roll-back to before the change would decide by answers that nobody gives any more."""
    core = Recalibrator(REPHRASED)
    fitted = CalibrationMap(uncertainty=(0.1, 0.5), error_probability=(0.1, 0.6))
    command: dict[str, Any] = {"workload": core.settings.name, "issued_by": "me", "issued_at": START, "map": fitted}
    assert core.observe(Command(action="activate", version=3, basis=OURS.basis, **command)) is None
    assert "another prompt" in core.status().commands[-1].note
    taken = core.observe(Command(action="activate", version=3, basis=REPHRASED.basis, **command))
    assert taken is not None
    assert taken.basis == REPHRASED.basis


@pytest.mark.parametrize(
    ("changed", "of_version"),
    [
        ({"target": {"micro_f1": 0.8}}, {"target": Target(micro_f1=0.8)}),
        ({"cost": {"small": 1.0, "large": 9.0}}, {"costs": ModelCosts(small=1.0, large=9.0)}),
        (
            {"sampling": {"label_probability_kept": 0.2, "label_probability_escalated": 0.3}},
            {"label_probability_kept": 0.2, "label_probability_escalated": 0.3},
        ),
    ],
)
def test_another_target_refits_at_the_next_event(
    learned: Recalibrator, changed: dict[str, Any], of_version: dict[str, object]
) -> None:
    """Without a cold start: what the labels say of the answers is as true as before. Unchanged settings do nothing."""
    kept, renewed = (Recalibrator.restore(configured, learned.snapshot()) for configured in (OURS, settings(**changed)))
    assert renewed.current == learned.current is not None
    assert drive(kept, WORLD.draw, 1, batch=1, first=QUERIES).versions == []
    (_, version), *more = drive(renewed, WORLD.draw, 1, batch=1, first=QUERIES).versions
    assert version.evidence.trigger == "settings_changed"
    assert {name: getattr(version, name) for name in of_version} == of_version
    assert more == []
