"""All policies on the same streams: a half, seeds and shares of the labels in, one row a policy and stream out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from research.answers.policies import ENTRIES, HINDSIGHT, MARGINS, static
from research.answers.scoring import row_of, score, summed_up
from research.answers.streams import DRIFTS, Judged, draw_judged
from research.recorded.simulate import Policy, simulate

REFERENCE = "service"
AIM = 0.95
"""Share of blocks on target that the best static margin must hold where our own policy does not run beside it."""


class Plan(NamedTuple):
    """What is to be run; ``labels`` are shares of the usual ones."""

    half: str
    seeds: Sequence[int]
    policies: Sequence[str] = tuple(ENTRIES)
    labels: Sequence[float] = (1.0, 0.25)
    scale: float = 1.0
    drifts: int = DRIFTS

    @property
    def steps(self) -> int:
        """How many times :func:`run` says what it does."""
        return len(self.seeds) * (1 + len(self.labels) * len(self.policies))


def run(
    plan: Plan, told: Callable[[str], None], keep: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Run a plan; ``keep`` is given the results after each stream, so that an end ahead of time loses one stream.

    Returns ``rows``, one a policy, share of labels and stream; ``streams``, what they were made of; ``margin``, the
    best one of the static calibration in hindsight, and ``margins``, what each would have given.
    """
    rows: list[dict[str, Any]] = []
    by_margin: dict[float, list[dict[str, Any]]] = {margin: [] for margin in MARGINS}
    streams = []
    for seed in plan.seeds:
        judged = draw_judged(plan.half, seed, scale=plan.scale, drifts=plan.drifts)
        streams.append(_about(judged, seed))
        told(f"seed {seed}: static margins")
        for margin in MARGINS:
            by_margin[margin].append({"seed": seed, **_played(static(judged, margin), judged)})
        for share in plan.labels:
            judged = draw_judged(plan.half, seed, scale=plan.scale, drifts=plan.drifts, labels=share)
            for name in plan.policies:
                told(f"seed {seed}, {share:.0%} of the labels: {ENTRIES[name].title}")
                played = _played(ENTRIES[name].make(judged), judged)
                rows.append({"policy": name, "labels": share, "seed": seed, **played})
        found = _gathered(plan, streams, rows, by_margin)
        keep(found)
    return found


def _gathered(
    plan: Plan,
    streams: list[dict[str, Any]],
    rows: list[dict[str, Any]],
    by_margin: dict[float, list[dict[str, Any]]],
) -> dict[str, Any]:
    """Return the results of the streams so far, the best static margin among them."""
    means = {margin: summed_up([figures_of(row) for row in some]) for margin, some in by_margin.items()}
    ours = [row["on_target"] for row in rows if row["policy"] == REFERENCE and row["labels"] == plan.labels[0]]
    chosen = best_margin(
        {margin: (found["on_target"][0], found["regret"][0]) for margin, found in means.items()},
        sum(ours) / len(ours) if ours else AIM,
    )
    hindsight = [{"policy": HINDSIGHT, "labels": share, **row} for share in plan.labels for row in by_margin[chosen]]
    margins = [{"margin": margin, **{name: found[name][0] for name in _OF_MARGINS}} for margin, found in means.items()]
    return {
        "half": plan.half,
        "scale": plan.scale,
        "streams": streams,
        "margin": chosen,
        "margins": margins,
        "rows": [*rows, *hindsight],
    }


_OF_MARGINS = ("on_target", "regret", "back_on_target", "back_regret")


def best_margin(by_margin: dict[float, tuple[float, float]], wanted: float) -> float:
    """Return the cheapest margin that holds a share of blocks, or the one that holds most where none does.

    Examples
    --------
    >>> best_margin({0.0: (0.5, 0.0), 0.01: (0.9, 0.1), 0.02: (0.96, 0.2), 0.03: (0.95, 0.3)}, 0.95)
    0.02
    """
    holding = [margin for margin, (on_target, _) in by_margin.items() if on_target >= wanted]
    if holding:
        return min(holding, key=lambda margin: by_margin[margin][1])
    return max(by_margin, key=lambda margin: by_margin[margin][0])


_NAMING = ("policy", "labels", "seed", "stream")


def figures_of(row: dict[str, Any]) -> dict[str, float]:
    """Return a row's figures without what names it."""
    return {name: value for name, value in row.items() if name not in _NAMING}


def _played(policy: Policy, judged: Judged) -> dict[str, float]:
    return row_of(score(simulate(policy, judged.stream), judged), judged)


def _about(judged: Judged, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "pair": judged.pair,
        "offline": len(judged.offline),
        "queries": len(judged.stream),
        "drifts": [
            f"{phase.title}{'' if oracle.feasible else ' (out of reach)'}"
            for phase, oracle in zip(judged.stream.phases[1::2], judged.oracles[1::2], strict=True)
        ],
    }
