"""Labels count under the handoff they were made under, and a handoff that costs too much is switched off."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from recalibrator.fit.data.traffic_window import MIX, PAIRS
from schemas import CalibrationVersion, LabelledExample, OutcomeCounts, TrafficSummary, WorkloadSettings
from schemas.basis import Handoff
from tests.support.cascade_stream import drive, settings, typo_world
from tests.support.cores import detail, present, restarted
from tests.support.orders import order

QUERIES = 3_000
WORLD = typo_world(3 * QUERIES, drift_at=30 * QUERIES)
NAME = "field@0.9"
ON = Handoff(margin=0.9)


def handing(**changes: Any) -> WorkloadSettings:
    return settings(handoff={"margin": 0.9}, **changes)


def under(event: Observation, name: str | None, harm: int = 0, *, guarded: bool = False) -> Observation:
    """Return an event as if it had been made under a handoff that takes so many pairs from the large answers."""
    if isinstance(event, TrafficSummary):
        parts = tuple(part.model_copy(update={"handoff": name}) for part in event.versions)
        return event.model_copy(update={"versions": parts})
    if not isinstance(event, LabelledExample):
        return event
    changed: dict[str, Any] = {"handoff": name}
    if event.large is not None and name is not None:
        right = max(0, event.large.true_positives - harm)
        changed["large"] = OutcomeCounts(true_positives=right, predicted=event.large.predicted)
        changed["large_alone"] = event.large if guarded else None
    return event.model_copy(update=changed)


class HandingCore(Recalibrator):
    """A core whose stream comes from routers that do as its version in force says.

    ``harm``: pairs that a handoff takes from each large answer.
    """

    harm = 0

    def observe(self, event: Observation) -> CalibrationVersion | None:
        in_force = ON if self.current is None else self.current.handoff
        name = NAME if in_force is not None and in_force.active else None
        return super().observe(under(event, name, self.harm, guarded=True))


class HarmedCore(HandingCore):
    harm = 1


@pytest.mark.parametrize("name", [None, "token@0.9"])
def test_labels_made_under_another_handoff_do_not_count(name: str | None) -> None:
    """They are counted as such, and lead to no version."""

    class OtherCore(Recalibrator):
        def observe(self, event: Observation) -> CalibrationVersion | None:
            return super().observe(under(event, name))

    core = OtherCore(handing())
    run = drive(core, WORLD.draw, 1_000)
    assert run.versions == []
    assert detail(core, "labels_of_other_handoff") == run.labels > 0
    assert core.status().labels.received == 0


def test_u_of_other_traffic_counts_and_its_agreement_does_not() -> None:
    """The small model answers alike under all handoffs; the large one does not."""
    ours, theirs = Recalibrator(settings()), Recalibrator(handing())

    class Seeing(Recalibrator):
        def observe(self, event: Observation) -> CalibrationVersion | None:
            if isinstance(event, TrafficSummary):
                ours.observe(event)
                theirs.observe(under(event, "token@0.9"))
            return None

    drive(Seeing(settings()), WORLD.draw, 1_000)
    assert theirs.status().uncertainty == ours.status().uncertainty
    assert ours._traffic.recent["queries"] == theirs._traffic.recent["queries"] > 0
    assert ours._traffic.counts[PAIRS:MIX].sum() > 0
    assert theirs._traffic.counts[PAIRS:MIX].sum() == 0


def test_a_costly_handoff_is_switched_off_by_a_new_version() -> None:
    """The threshold stays; from then on only what the large model says alone is learned from."""
    core = HarmedCore(handing())
    versions = [version for _, version in drive(core, WORLD.draw, 2 * QUERIES).versions]
    kinds = [present(version.handoff).active for version in versions]
    assert kinds == sorted(kinds, reverse=True)
    first_off = kinds.index(False)
    before, off, *_ = versions[first_off - 1 :]
    assert off.evidence.trigger == "handoff_off"
    assert (off.map, off.uncertainty_threshold) == (before.map, before.uncertainty_threshold)
    assert len(kinds) > first_off + 1
    status = core.status()
    found = present(status.handoff)
    assert not found.active
    assert present(found.micro_f1_loss).lower > 0.002
    assert "handed over" in status.sentence


def test_a_version_held_by_people_keeps_its_handoff() -> None:
    """As with audits, what is pinned is changed by nobody else."""
    core = HarmedCore(handing())
    drive(core, WORLD.draw, 200)
    order(core, "refit")
    order(core, "pin")
    assert drive(core, WORLD.draw, QUERIES, first=200).versions == []
    assert present(core.status().handoff).active


def test_a_restored_core_goes_on_under_its_handoff() -> None:
    """Byte for byte, before and after it was switched off; under another one it starts cold, numbers apart."""
    for queries in (QUERIES, 2 * QUERIES):
        core = HarmedCore(handing())
        drive(core, WORLD.draw, queries)
        again = HarmedCore.restore(handing(), core.snapshot())
        assert again.snapshot() == core.snapshot()
        assert again.status() == core.status()
        other = restarted(core, handoff={"margin": 0.8})
        assert (other.current, other.version_floor) == (None, core.version_floor)


def test_costs_of_tokens_are_those_of_the_mean_call() -> None:
    """Versions and the status price calls; large-only is what calls without handoff would cost."""
    tokens = {"small_tokens": 10_000, "large_tokens": 3_000, "large_prompt_tokens": 11_000}
    tokens |= {"handed_over_tokens": 1_500, "lost_tokens": 500, "lost_prompt_tokens": 800}
    prices = {"unit": "token", "small": 1.0, "large": 3.0, "prompt_large": 0.1}

    class CountingCore(HandingCore):
        def observe(self, event: Observation) -> CalibrationVersion | None:
            if isinstance(event, TrafficSummary):
                counted = {"small_calls": 200, "large_calls": 100} | tokens
                parts = tuple(part.model_copy(update=counted) for part in event.versions[:1])
                event = event.model_copy(update={"versions": parts})
            return super().observe(event)

    core = CountingCore(handing(cost=prices))
    _, version = drive(core, WORLD.draw, QUERIES).versions[-1]
    costs, alone = present(version.costs), pytest.approx(3.0 * (30 - 5 + 15) + 0.1 * (110 - 8 - 15))
    assert (costs.small, costs.large) == pytest.approx((50.0, 3.0 * 30 + 0.1 * 110))
    assert costs.alone == alone
    assert present(core.status().cost).large_only == alone
    assert present(version.evidence.expected_cost).large_only == alone
