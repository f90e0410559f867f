"""Corrections, withdrawals and relabelling: they reach the estimates, the detectors and the gate alike.

Streams are recorded once by the core's own versions; each test then changes what labelers say, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from schemas import Command, LabelledExample, TrafficSummary
from schemas.draws import uniform
from tests.recalibrator.fit.test_recalibrator import recording
from tests.support.cascade_stream import FIELDS, settings, typo_world
from tests.support.cores import detail, in_force, present, restarted
from tests.support.orders import note, order

QUERIES = 6_000
#: Events after which a correction comes.
LATER = 400

WORLD = typo_world(QUERIES, QUERIES, seed=12)
Event = LabelledExample | TrafficSummary | Command
Says = Callable[[LabelledExample], LabelledExample]
#: What comes first and what later, where the two differ.
Revised = tuple[LabelledExample, LabelledExample] | None
Change = Callable[[LabelledExample], Revised]
LABELERS = ("ann", "bea", "cy", "dee", "eve")


@cache
def recorded() -> tuple[Event, ...]:
    """Return a stationary stream as the core saw it, all labels true, each by one of five people."""
    return tuple(recording(WORLD, QUERIES))


def said(example: LabelledExample, small: int, large: int | None) -> LabelledExample:
    """Return a label by which the answers hold so many right pairs."""
    changed = {"small": present(example.small).model_copy(update={"true_positives": small})}
    if example.large is not None:
        changed["large"] = example.large.model_copy(update={"true_positives": min(FIELDS, large or 0)})
    return example.model_copy(update=changed | {"small_exact": small == FIELDS})


def careless(example: LabelledExample) -> LabelledExample:
    """Misname one pair, which every answer then lacks."""
    large = None if example.large is None else max(0, example.large.true_positives - 1)
    return said(example, max(0, present(example.small).true_positives - 1), large)


def with_later(events: Sequence[Event], change: Change) -> list[Event]:
    """Let some labels come as one thing first, and as another some hundred events later."""
    made: list[tuple[int, Event]] = []
    for number, event in enumerate(events):
        changed = change(event) if isinstance(event, LabelledExample) else None
        first, *later = (event,) if changed is None else changed
        made += [(2 * number + 1, first), *((2 * (number + LATER), one) for one in later)]
    return [event for _, event in sorted(made, key=itemgetter(0))]


def corrected(share: float) -> list[Event]:
    def change(label: LabelledExample) -> Revised:
        if uniform(label.query_id, "careless") >= share:
            return None
        return careless(label), label.model_copy(update={"revision": 2})

    return with_later(recorded(), change)


def run(events: Sequence[Event], core: Recalibrator | None = None) -> tuple[Recalibrator, Counter[str]]:
    """Feed events and count the triggers of versions, and alarms of detectors."""
    core, counted = core or Recalibrator(settings()), Counter[str]()
    for event in events:
        if (version := core.observe(event)) is not None:
            counted[version.evidence.trigger] += 1
    counted["alarms"] = sum(detector.alarms for detector in core.status().drift.detectors)
    return core, counted


@cache
def after_true_labels() -> tuple[Recalibrator, Counter[str]]:
    """Return what becomes of the stream as it was recorded; to be read only."""
    return run(recorded())


@cache
def after_honest_labelers() -> Recalibrator:
    """Return what becomes of it where five people label in turn; to be read only."""
    return run(named(recorded()))[0]


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_corrections_raise_no_alarm_and_end_in_true_estimates(share: float) -> None:
    """Nor is a label set aside because others are corrected."""
    (right, before), (core, counted) = after_true_labels(), run(corrected(share))
    assert (detail(core, "label_audit")["quarantined"], counted["labels_refuted"]) == (0, 0)
    if share < 0.1:
        assert counted["alarms"] <= before["alarms"] + 1
        assert counted["audit"] <= before["audit"] + 2
        np.testing.assert_allclose(right.evaluate().policies.micro_f1, core.evaluate().policies.micro_f1, atol=5e-3)


@pytest.mark.parametrize(("of", "share"), [("any", 0.05), ("slips", 0.15), ("errors", 0.05)])
def test_labels_withdrawn_for_a_reason_raise_few_alarms(of: str, share: float) -> None:
    """Slips that were withdrawn, instead of corrected, raised alarm after alarm; right labels may be withdrawn, too."""

    def change(label: LabelledExample) -> Revised:
        if uniform(label.query_id, "withdrawn") >= share or (of == "errors" and label.small_exact):
            return None
        first = careless(label) if of == "slips" else label
        return first, first.model_copy(update={"revision": 2, "retracted": True})

    _, before = after_true_labels()
    _, counted = run(with_later(recorded(), change))
    assert counted["alarms"] <= before["alarms"] + 1
    assert counted["audit"] <= before["audit"] + 1


def named(events: Sequence[Event]) -> list[Event]:
    """Let five people label in turn, by chance."""
    return [
        event.model_copy(update={"labeler": LABELERS[int(5 * uniform(event.query_id, "who"))]})
        if isinstance(event, LabelledExample)
        else event
        for event in events
    ]


def by_eve(says: Says, first: int) -> list[Event]:
    """Let one of these five say something else, from some event on."""
    return [
        says(event) if isinstance(event, LabelledExample) and event.labeler == "eve" and number >= first else event
        for number, event in enumerate(named(recorded()))
    ]


def aside(core: Recalibrator) -> dict[str, Any]:
    found: dict[str, Any] = detail(core, "labelers_set_aside")
    return found


def escalation(core: Recalibrator) -> float:
    return float((WORLD.uncertainty > in_force(core).uncertainty_threshold).mean())


def relabelled(events: Sequence[Event], share: float, says: Says) -> list[Event]:
    """Let eve label a share of all earlier queries again, two thirds through the stream."""
    at = 2 * len(events) // 3
    old = [event for event in events[:at] if isinstance(event, LabelledExample)]
    attack = [
        says(label).model_copy(update={"revision": 2, "labeler": "eve"})
        for label in old
        if uniform(label.query_id, "attacked") < share
    ]
    return [*events[:at], *attack, *events[at:]]


def small_wrong(label: LabelledExample) -> LabelledExample:
    return said(label, 0, FIELDS)


def small_right(label: LabelledExample) -> LabelledExample:
    return said(label, FIELDS, 0)


@pytest.mark.parametrize(("says", "share"), [(small_wrong, 0.33), (small_right, 1.0)])
def test_one_relabelling_labeler_does_not_move_the_threshold(says: Says, share: float) -> None:
    """Escalation went from 25 to 77 % where a third was called wrong, and to 0 where all was called right."""
    core, _ = run(relabelled(named(recorded()), share, says))
    assert escalation(core) == pytest.approx(escalation(after_honest_labelers()), abs=0.03)
    assert list(aside(core)) == ["eve"]
    assert aside(core)["eve"]["labels"] > 0
    assert "eve" in core.status().sentence


def test_believing_a_labeler_set_aside_took_a_restart() -> None:
    """Who is right after all, having misnamed a pair in every label for half of the stream, had to be configured."""
    core, _ = run(by_eve(careless, len(recorded()) // 2 + 1))
    before, version = aside(core), in_force(core)
    assert list(before) == ["eve"]
    made = present(order(core, "believe", labeler="eve"))
    assert (note(core), aside(core), made.evidence.trigger) == ("eve is believed", {}, "labelers_judged")
    assert made.evidence.labels >= version.evidence.labels + before["eve"]["labels"]
    again = restarted(core)
    assert again.status() == core.status()
    assert again.status().details["labelers_believed"] == ["eve"]
    for one in (core, again):
        order(one, "compare_again", labeler="eve")
        assert list(aside(one)) == ["eve"]
    assert again.snapshot() == core.snapshot()
