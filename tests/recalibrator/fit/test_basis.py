"""Labels, traffic and maps of another prompt, other models or fields, or another uncertainty signal do not count."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas import CalibrationVersion, LabelledExample, TrafficSummary
from schemas.routed import Decision
from schemas.settings import WorkloadSettings
from tests.recalibrator.fit.publish.test_versions import published
from tests.support import cascade_stream
from tests.support.cascade_stream import START, drive, typo_world
from tests.support.cores import present
from tests.support.orders import MAP, note, order
from tests.support.recalibrator_events import routed

QUERIES = 2_000
WORLD = typo_world(2 * QUERIES, drift_at=10 * QUERIES)


def settings(**changed: object) -> WorkloadSettings:
    """Return settings that name both models."""
    return cascade_stream.settings(
        **{role: {"base_url": "http://m/v1", "model": role} for role in ("small", "large")} | changed
    )


OURS = settings()
REPHRASED = settings(prompt="Name what {text} says of cameras.")
ENTROPY = settings(uncertainty="entropy")


def marked(event: Observation, made: dict[str, Any]) -> Observation:
    """Return an event as if its answers rested on something else, or its u had been measured another way."""
    if isinstance(event, LabelledExample):
        return event.model_copy(update=made)
    if isinstance(event, TrafficSummary):
        return event.model_copy(update={"versions": tuple(part.model_copy(update=made) for part in event.versions)})
    return event


class RephrasedCore(Recalibrator):
    """A core whose stream comes from routers with the other prompt."""

    made: ClassVar[dict[str, Any]] = {"basis": REPHRASED.basis_mark}
    former: ClassVar[dict[str, Any]] = {"basis": OURS.basis_mark}
    is_mixed = False

    def observe(self, event: Observation) -> CalibrationVersion | None:
        version = super().observe(marked(event, self.made))
        # Where it is mixed, each event comes a second time as it was formerly made, upside down.
        if self.is_mixed and isinstance(event, LabelledExample) and event.uncertainty is not None:
            turned = {"uncertainty": 1.0 - event.uncertainty, "query_id": f"{event.query_id} of old"}
            assert super().observe(marked(event.model_copy(update=turned), self.former)) is None
        elif self.is_mixed and isinstance(event, TrafficSummary):
            assert super().observe(marked(event, self.former)) is None
        return version


class EntropyCore(RephrasedCore):
    """A core whose stream comes from routers that measure entropy."""

    made: ClassVar[dict[str, Any]] = {"signal": "entropy", "basis": ENTROPY.basis_mark}
    former: ClassVar[dict[str, Any]] = {"signal": "token_margin", "basis": OURS.basis_mark}


CHANGES = pytest.mark.parametrize(
    ("kind", "configured", "of_other"),
    [(RephrasedCore, REPHRASED, "labels_of_other_basis"), (EntropyCore, ENTROPY, "labels_of_other_signal")],
)


@CHANGES
def test_labels_of_two_prompts_are_never_fitted_together(
    kind: type[RephrasedCore], configured: WorkloadSettings, of_other: str
) -> None:
    """A stream with labels of the former prompt or signal gives the very versions that its own alone give."""
    pure, mixed = kind(configured), kind(configured)
    mixed.is_mixed = True
    alone, among = drive(pure, WORLD.draw, QUERIES), drive(mixed, WORLD.draw, QUERIES)
    assert alone.versions
    assert [v.to_json() for _, v in among.versions] == [v.to_json() for _, v in alone.versions]
    assert {(one.basis, one.signal) for _, one in alone.versions} == {(configured.basis, configured.signal)}
    details = mixed.status().details
    assert details[of_other] == among.labels
    assert details.get("uncertainty_signal", "token_margin") == configured.uncertainty


def test_of_a_mixed_summary_only_the_configured_part_counts() -> None:
    """While routers restart one after the other, one join sees results of both kinds, by one version even."""
    ours = settings(name="photo")
    decision = Decision(escalated=True, reason="threshold", uncertainty=0.5, large_probability=1.0)
    for other in (settings(name="photo", prompt="Else: {text}"), settings(name="photo", uncertainty="entropy")):
        summarizer = TrafficSummarizer(ours)
        for number in range(40):
            made = other if number % 4 == 0 else ours
            summarizer.add(routed(number, basis=made.basis_mark, signal=made.uncertainty, decision=decision))
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


@CHANGES
def test_a_core_restored_for_other_answers_starts_cold(
    learned: Recalibrator, kind: type[RephrasedCore], configured: WorkloadSettings, of_other: str
) -> None:
    """Its next version lies above all former ones, and rests on labels of the new kind alone."""
    core = kind.restore(configured, learned.snapshot())
    assert (core.current, core.trial, core.status().state) == (None, None, "cold_start")
    assert of_other not in core.status().details
    assert core.version_floor == learned.version_floor
    first = drive(core, WORLD.draw, QUERIES, first=QUERIES).versions[0][1]
    assert (first.version, first.parent_version) == (learned.version_floor + 1, None)
    assert (first.basis, first.signal) == (configured.basis, configured.signal)
    assert present(first.evidence.window_from) > START


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


@pytest.mark.parametrize(
    "changed",
    [
        {"target": {"micro_f1": 0.8}},
        {"cost": {"small": 1.0, "large": 9.0}},
        {"sampling": {"label_probability_kept": 0.2, "label_probability_escalated": 0.3}},
    ],
)
def test_another_target_refits_at_the_next_event(learned: Recalibrator, changed: dict[str, Any]) -> None:
    """Without a cold start: what the labels say of the answers is as true as before. Unchanged settings do nothing."""
    new = settings(**changed)
    kept, renewed = (Recalibrator.restore(configured, learned.snapshot()) for configured in (OURS, new))
    assert renewed.current == learned.current is not None
    assert drive(kept, WORLD.draw, 1, batch=1, first=QUERIES).versions == []
    (_, version), *more = drive(renewed, WORLD.draw, 1, batch=1, first=QUERIES).versions
    assert version.evidence.trigger == "settings_changed"
    assert (version.target, present(version.costs).large) == (new.target, present(new.cost).large)
    assert version.label_shares.escalated == new.sampling.label_probability_escalated
    assert more == []


@pytest.mark.parametrize("action", ["bootstrap", "activate", "pin"])
@pytest.mark.parametrize(
    ("ours", "because", "made"),
    [
        (REPHRASED, "refused: its map was made with another prompt", {"basis": REPHRASED.basis}),
        (ENTROPY, "refused: its map is of the uncertainty signal token_margin", {"signal": "entropy"}),
    ],
)
def test_a_map_made_otherwise_is_refused(
    action: str, ours: WorkloadSettings, because: str, made: dict[str, Any]
) -> None:
    """It would decide by answers that nobody gives any more, or mix two axes."""
    core, version = Recalibrator(ours), None if action == "bootstrap" else 3
    content: dict[str, Any] = {"version": version, "map": MAP, "uncertainty_threshold": 0.3}
    assert order(core, action, basis=OURS.basis, **content) is None
    assert because in str(note(core))
    taken = published(core, action, **content | made)
    assert (taken.basis, taken.signal) == (ours.basis, ours.signal)
