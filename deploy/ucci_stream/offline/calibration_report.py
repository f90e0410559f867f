"""What a calibration made offline means for quality and cost: a sentence, and a table of what else could be had."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from schemas.calibration import CalibrationVersion, Target
from schemas.costs import CostRate, ModelCosts, expected_cost
from schemas.labelled import LabelledExample
from schemas.settings import WorkloadSettings
from schemas.target_words import of_cap, of_fields
from ucci_stream.offline.bootstrap import first_version
from ucci_stream.offline.calibrate import Calibrated

_TARGET_STEPS = (-0.02, -0.01, 0.0, 0.01, 0.02)
_COST_RATIOS = (2.0, 5.0, 10.0)
_TARGETS = (0.01, 0.99)
_BUDGET_FACTORS = (0.8, 0.9, 1.0, 1.1, 1.2)


@dataclass(frozen=True, slots=True)
class Promise:
    """What one version promises."""

    target: Target
    #: ``active`` or ``infeasible``.
    state: str

    escalation_rate: float
    #: Estimate, and half the width of its 95% interval.
    micro_f1: float
    margin: float
    #: The highest that any threshold reaches, where none reaches the target.
    best_micro_f1: float | None
    #: By the cost of a large call, in small calls; none where no cost is known.
    costs: tuple[tuple[float, CostRate], ...]
    #: What the target says of single fields, or what a cap costs; empty for a micro-F1 alone.
    remark: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        promised = {"promised": self.target.model_dump(mode="json"), "remark": self.remark}
        return {
            "target": self.target.micro_f1,
            **({} if self.target.is_plain else promised),
            "state": self.state,
            "escalation_rate": self.escalation_rate,
            "micro_f1": {"estimate": self.micro_f1, "margin_95": self.margin, "best": self.best_micro_f1},
            "costs": [{"large": large, **rate.model_dump(mode="json")} for large, rate in self.costs],
        }


def promise_of(version: CalibrationVersion, ratios: Sequence[float]) -> Promise:
    """Return what a version promises, with its costs at these prices of a large call in small calls."""
    evidence = version.evidence
    estimate, interval = evidence.micro_f1, evidence.details["micro_f1_95"]
    rate = evidence.escalation_rate or 0.0
    explored = version.exploration_probability
    remarks = of_fields(version.target, evidence.standing), of_cap(version.target, estimate, evidence.standing)
    return Promise(
        target=version.target,
        state=version.state,
        escalation_rate=rate,
        micro_f1=0.0 if estimate is None else estimate.estimate,
        margin=(interval["upper"] - interval["lower"]) / 2.0,
        best_micro_f1=evidence.best_micro_f1,
        costs=tuple((large, expected_cost(ModelCosts(large=large), rate, explored)) for large in ratios),
        remark="; ".join(remark for remark in remarks if remark),
    )


def sentence(promise: Promise) -> str:
    """Return the promise in one sentence; its first cost is the one in force."""
    begin = f"at target {_goal(promise.target)}: "
    if promise.target.cost is not None and promise.state == "infeasible":
        begin += "out of reach, the small calls and exploration cost more; "
    elif promise.best_micro_f1 is not None:
        begin += f"out of reach, any threshold is expected to give {_share(promise.best_micro_f1)} at most; "
    cost = ""
    if promise.costs:
        _, rate = promise.costs[0]
        cost = f"cost {rate.sequential:.2f} of {rate.large_only:.2f} (paper {rate.paper:.2f}), "
    quality = f"micro-F1 {_share(promise.micro_f1)} ± {_share(promise.margin)}"
    said = f"{begin}escalate {promise.escalation_rate:.0%}, {cost}{quality}".replace("%,", " %,")
    return f"{said}; {promise.remark}" if promise.remark else said


def _goal(target: Target) -> str:
    return _share(target.micro_f1, 2) if target.is_plain and target.micro_f1 is not None else str(target)


def what_if(settings: WorkloadSettings, examples: Sequence[LabelledExample], made: CalibrationVersion) -> list[Promise]:
    """Return the promises at targets around the configured one, each with its costs at several prices.

    Each target is fitted separately, for the choice's margin depends on it. The cost ratio changes no threshold: the
    cheapest policy is the one that escalates least, whatever the price.
    """
    present = _in_force(settings)
    ratios = (*present, *(ratio for ratio in _COST_RATIOS if ratio not in present))
    versions = (
        made
        if target == settings.target
        else first_version(settings.model_copy(update={"target": target}), examples, made.created_at, "what-if")
        for target in _targets_around(settings.target)
    )
    return [promise_of(version, ratios) for version in versions]


def _promised(done: Calibrated) -> Promise:
    return promise_of(done.version, _in_force(done.settings))


def _in_force(settings: WorkloadSettings) -> tuple[float, ...]:
    """Return the cost of a large call in small calls, or nothing where no cost is known."""
    return () if settings.cost is None else (settings.cost.large / settings.cost.small,)


def _targets_around(target: Target) -> Iterator[Target]:
    """Yield the targets to compare: other qualities, or other budgets; targets of fields alone stand alone."""
    if target.micro_f1 is not None:
        around = (round(target.micro_f1 + step, 6) for step in _TARGET_STEPS)
        yield from (target.model_copy(update={"micro_f1": one}) for one in around if _TARGETS[0] <= one <= _TARGETS[1])
    elif target.cost is not None:
        yield from (target.model_copy(update={"cost": round(target.cost * factor, 6)}) for factor in _BUDGET_FACTORS)
    else:
        yield target


def what_if_table(promises: Sequence[Promise], in_force: Target) -> Table:
    """Return the table for people; the row of the configured target is bold."""
    ratios = [large for large, _ in promises[0].costs]
    table = Table("target", "escalated", "micro-F1", title="cost of a query, sequential / paper, in small calls")
    for place, ratio in enumerate(ratios):
        table.add_column(f"large = {ratio:g}" + (" *" if not place else ""), justify="right")
    for promise in promises:
        reached = f"{_share(promise.micro_f1)} ± {_share(promise.margin)}"
        if promise.best_micro_f1 is not None:
            reached += ", out of reach"
        costs = [f"{rate.sequential:.2f} / {rate.paper:.2f}" for _, rate in promise.costs]
        style = "bold" if promise.target == in_force else None
        table.add_row(_goal(promise.target), f"{promise.escalation_rate:.1%}", reached, *costs, style=style)
    return table


def report(done: Calibrated, promises: Sequence[Promise]) -> dict[str, Any]:
    """Return everything as JSON values, the other targets last; ``promises`` may be empty."""
    promise = _promised(done)
    return {
        "sentence": sentence(promise),
        **promise.as_json(),
        "uncertainty_threshold": done.version.uncertainty_threshold,
        "examples": len(done.examples),
        "small_failures": done.small_failures,
        "large_failures": done.large_failures,
        "left_out": done.left_out,
        "measured_cost": done.measured_cost,
        "doubts": doubts(done),
        "version": json.loads(done.version.to_json()),
        "what_if": [one.as_json() for one in promises],
    }


def doubts(done: Calibrated) -> list[str]:
    """Return what speaks against publishing: a file that no model agrees with, a cascade that does not pay."""
    found, promise = [], _promised(done)
    exact = (
        one.small_exact or (one.large and one.large.true_positives == one.large.predicted == one.gold_count)
        for one in done.examples
    )
    if not any(exact):
        found.append(f"not one of {len(done.examples)} gold lines agrees with either model: is the file right?")
    for ratio, rate in promise.costs:
        if rate.sequential < rate.large_only:
            continue
        large_runs = (rate.sequential - 1.0) / ratio
        ways = [f"from large = {1.0 / (1.0 - large_runs):.2f} small calls on"] if large_runs < 1.0 else []
        ways += [
            f"at target {_goal(other.target)}"
            for other in what_if(done.settings, done.examples, done.version)[::-1]
            if other.costs[0][1].sequential < other.costs[0][1].large_only
        ][:1]
        line = f"does not pay: {rate.sequential:.2f} a query, where the large model alone costs {rate.large_only:.2f}"
        found.append(f"{line}; it would {' or '.join(ways)}" if ways else line)
    return found


def lines(done: Calibrated, promises: Sequence[Promise]) -> list[RenderableType]:
    """Return the sentence, what stands behind it, and the table of other targets where there is one."""
    counts = f"{len(done.examples)} examples"
    failures = ((done.small_failures, "small"), (done.large_failures, "large"))
    counts += "".join(f", {count} without a usable {role} answer" for count, role in failures if count)
    if done.left_out:
        counts += f", {done.left_out} left out because neither model gave one"
    found: list[RenderableType] = [Text(sentence(_promised(done)), style="bold"), *doubts(done), counts]
    if done.measured_cost and done.settings.cost is not None:
        found.append(
            f"cost: large = {done.settings.cost.large:g} small calls, by the mean latencies of this run; set "
            f"[workloads.{done.settings.name}] cost to what a call costs you"
        )
    return [*found, *([what_if_table(promises, done.settings.target)] if promises else [])]


def draw(done: Calibrated, path: Path) -> Path:
    """Draw the map and the frontier to a PNG or SVG, the sentence above them."""
    from ucci_stream.offline.pictures import plot_calibration

    return plot_calibration(done.version, path, done.examples, sentence(_promised(done)))


def _share(value: float, digits: int = 3) -> str:
    """Return a share as papers write it, without the zero before the point."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if value < 1.0 else text
