"""Policies on the same short streams: names of streams, seeds and shares of labels give one row a policy and stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from research.answers.experiment import AIM, best_margin, figures_of
from research.answers.policies import ENTRIES, HINDSIGHT, MARGINS, Entry, ours, static
from research.answers.scoring import averaged
from research.answers.short.coverage import Error, Watched, by_segment, errors_of
from research.answers.short.scoring import blocks_of, row_of
from research.answers.short.streams import PHASE_QUERIES, STREAMS, draw_short
from research.answers.streams import Judged
from research.recorded.simulate import Policy, simulate
from schemas.calibration import Target

SAFETY = float(Target.model_fields["safety"].default)
"""What a workload has that sets none. The long judge's ``SAFETY`` is a choice of its own and stays where it is."""

SERVICE = "service"
POLICIES = tuple(ENTRIES)
LABELS = (0.24, 0.08, 0.02)
"""Shares of the queries that are labelled, about."""

Row = dict[str, Any]


class Plan(NamedTuple):
    """What is to be run.

    ``labels``: shares of the queries. ``safety``: of the service, in standard errors. ``queries``: of each phase.
    """

    half: str
    seeds: Sequence[int]
    streams: Sequence[str] = STREAMS
    policies: Sequence[str] = ("static", SERVICE)
    labels: Sequence[float] = LABELS
    safety: float = SAFETY
    queries: int = PHASE_QUERIES

    @property
    def steps(self) -> int:
        """How many times :func:`run` says what it does."""
        return len(self.streams) * len(self.seeds) * (1 + len(self.labels) * len(self.policies))

    def draw(self, name: str, seed: int, labels: float = LABELS[0]) -> Judged:
        """Draw one of its streams."""
        return draw_short(name, seed, half=self.half, labels=labels, queries=self.queries)


def entry_of(name: str, safety: float) -> Entry:
    """Return a policy as the long judge has it, but for the service, which gets a margin and is watched."""
    if name != SERVICE:
        return ENTRIES[name]
    return Entry(ENTRIES[name].title, lambda judged: ours(judged, safety, Watched))


def run(plan: Plan, told: Callable[[str], None]) -> dict[str, Any]:
    """Run a plan; ``told`` is given what comes next.

    Returns ``rows``, one a stream, seed, share of labels and policy; ``coverage`` of the service's standard error, one
    a stream, share of labels and segment; ``margins``, what the static calibration does with each; ``chosen``, the best
    of them by stream; and ``streams``, what they were made of.
    """
    rows: list[Row] = []
    margins: list[Row] = []
    coverage: list[Row] = []
    chosen: dict[str, float] = {}
    for name in plan.streams:
        told_of = _told_of(told, name)
        by_margin = _static_by_margin(plan, name, told_of)
        means = {margin: averaged([figures_of(row) for row in some]) for margin, some in by_margin.items()}
        chosen[name] = best_margin(
            {margin: (mean["drifted_on_target"][0], mean["drifted_cost"][0]) for margin, mean in means.items()}, AIM
        )
        margins += [_margin_row(name, margin, mean) for margin, mean in means.items()]
        for share in plan.labels:
            walked, errors = _walked(plan, name, share, told_of)
            hindsight = [{"policy": HINDSIGHT, "labels": share, **row} for row in by_margin[chosen[name]]]
            rows += [*walked, *hindsight]
            coverage += [{"stream": name, "labels": share, **segment} for segment in by_segment(errors)]
    return {
        "half": plan.half,
        "safety": plan.safety,
        "queries": plan.queries,
        "streams": [_about(plan.draw(name, seed), name, seed) for name in plan.streams for seed in plan.seeds],
        "chosen": chosen,
        "margins": margins,
        "coverage": coverage,
        "rows": rows,
    }


def _told_of(told: Callable[[str], None], name: str) -> Callable[[str], None]:
    return lambda what: told(f"{name}: {what}")


def _static_by_margin(plan: Plan, name: str, told: Callable[[str], None]) -> dict[float, list[Row]]:
    """Return the static calibration's rows by margin; it asks for no labels, so one run serves all shares."""
    by_margin: dict[float, list[Row]] = {margin: [] for margin in MARGINS}
    for seed in plan.seeds:
        told(f"seed {seed}, static margins")
        judged = plan.draw(name, seed)
        for margin, rows in by_margin.items():
            rows.append({"stream": name, "seed": seed, **_played(static(judged, margin), judged)})
    return by_margin


def _walked(plan: Plan, name: str, share: float, told: Callable[[str], None]) -> tuple[list[Row], list[list[Error]]]:
    """Return the rows of all policies at one share of labels, and by seed how far the service's estimate was off."""
    rows = []
    errors = []
    for seed in plan.seeds:
        judged = plan.draw(name, seed, share)
        for policy in plan.policies:
            entry = entry_of(policy, plan.safety)
            told(f"seed {seed}, {share:.0%} labelled, {entry.title}")
            made = entry.make(judged)
            rows.append({"policy": policy, "labels": share, "stream": name, "seed": seed, **_played(made, judged)})
            if isinstance(made, Watched):
                errors.append(errors_of(made.looks, judged))
    return rows, errors


def _played(policy: Policy, judged: Judged) -> dict[str, float]:
    return row_of(blocks_of(simulate(policy, judged.stream), judged))


def _margin_row(name: str, margin: float, means: dict[str, tuple[float, float | None]]) -> Row:
    return {"stream": name, "margin": margin, **{figure: mean for figure, (mean, _) in means.items()}}


def _about(judged: Judged, name: str, seed: int) -> Row:
    drift = judged.stream.phases[1]
    oracle = judged.oracles[1]
    return {
        "stream": name,
        "seed": seed,
        "pair": judged.pair,
        "kind": judged.kinds[1],
        "offline": len(judged.offline),
        "drift": f"{drift.title}{'' if oracle.feasible else ' (out of reach)'}",
    }
