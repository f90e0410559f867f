"""Rows of streams and margins → JSON and a Markdown page: what a handoff saves at equal compliance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.drift.paired import Difference, difference
from research.handoff.experiment import LARGE_TOKEN
from research.paper.intervals import Interval, interval, resamplings
from research.paper.tables import between, percent, signed, table
from research.recorded.stream import PHASES, Floats
from research.recorded.tokens import HANDOFF
from research.results_json import receipt, write_report

TITLES = {"none": "none", "handoff": "handoff"}
COSTS = {"sequential_tokens": "sequential", "paper_tokens": "paper's"}
ROUNDS = 2_000
_SEED = 17

Row = dict[str, Any]


class Frontier:
    """What the service costs and holds with or without handoff, by stream and margin.

    ``rows``: of the service one way; each stream has all margins.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.safeties = sorted({row["safety"] for row in rows})
        seeds = sorted({row["seed"] for row in rows})
        by_place = {(row["seed"], row["safety"]): row for row in rows}
        self._grid = [[by_place[seed, safety] for safety in self.safeties] for seed in seeds]

    def column(self, name: str) -> Floats:
        """Return one figure, shape (streams, margins)."""
        return np.array([[row[name] for row in stream] for stream in self._grid])

    def held(self, weights: Floats) -> Floats:
        """Return the mean share of blocks on target at each margin, streams counted as often as they are drawn."""
        return np.average(self.column("expected_on_target"), axis=0, weights=weights)

    def cost_at(self, held: float, cost: str, weights: Floats) -> float:
        """Return the cost at which a share of blocks is on target.

        By a straight line through the margins' means, of the logarithm of the cost on that share: neighbouring margins
        differ by less than their noise.
        """
        costs = np.log(np.average(self.column(cost), axis=0, weights=weights))
        at = self.held(weights)
        spread = float((at - at.mean()) @ (at - at.mean()))
        slope = float((at - at.mean()) @ (costs - costs.mean())) / spread if spread > 0.0 else 0.0
        return float(np.exp(costs.mean() + slope * (held - at.mean())))


def frontiers(rows: Sequence[Row]) -> dict[str, Frontier]:
    """Return the frontiers without and with handoff."""
    ours = [row for row in rows if row["policy"] == "service"]
    return {name: Frontier([row for row in ours if row["levers"] == name]) for name in TITLES}


def at_equal_compliance(rows: Sequence[Row], levers: str, cost: str, safety: float) -> tuple[float, Interval]:
    """Return cost with a handoff over cost without, where as many blocks are on target as without at a margin.

    Returns the ratio, and its 95 % interval of a bootstrap over streams; both sides have the same streams.
    """
    found = frontiers(rows)
    without, with_them = found["none"], found[levers]
    place = without.safeties.index(safety)

    def ratio(weights: Floats) -> float:
        held = float(without.held(weights)[place])
        return with_them.cost_at(held, cost, weights) / without.cost_at(held, cost, weights)

    streams = len(without.column(cost))
    drawn = np.array([ratio(weights) for weights in resamplings(streams, ROUNDS, _SEED)])
    return ratio(np.ones(streams)), interval(drawn)


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    ``results``: ``target``, ``safety`` (the usual margin) and ``rows``. ``made``: how the results came about: command,
    machine, day and the like.
    """
    rows, safety = results["rows"], results["safety"]
    ratios = [
        {"levers": levers, "cost": cost, "safety": margin, "ratio": ratio, "interval": found}
        for levers in TITLES
        if levers != "none"
        for cost in COSTS
        for margin in sorted({safety, 1.0} & {row.get("safety") for row in rows})
        for ratio, found in [at_equal_compliance(rows, levers, cost, margin)]
    ]
    write_report(folder, {**results, "at_equal_compliance": ratios}, made, _page)


def _page(results: dict[str, Any], made: dict[str, Any]) -> str:
    parts = [
        "# Handoff on the recorded streams, at equal compliance",
        receipt(made),
        _introduction(results),
        "## What it shows",
        _findings(results),
        "## Cost at equal compliance",
        _equal(results),
        "## At the same margin",
        _same_margin(results),
        "## By margin",
        _margins(results),
        "## Beside it: policies that do not learn",
        _static(results["rows"]),
        "## By phase",
        _phases(results),
        "## What the handoff did",
        _doings(results),
        _NOTES,
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(results: dict[str, Any]) -> str:
    seeds = sorted({row["seed"] for row in results["rows"]})
    return f"""[Handoff](../../../handoff.md) lets the large model go on from what the small one was certain of,
rather than begin anew. That saves tokens, and changes what is served: a share of what is handed over is wrong. The same
margin may therefore hold the target in fewer or more blocks, and a cheaper service may only be a worse one. This page
compares costs where **equally many blocks are on target**.

Streams have seven phases of 30,000 recorded queries (`research/recorded/stream.py`; target {results["target"]}). All
start from one offline set, whose chance is in no interval here:
{len(seeds)} streams (seeds {", ".join(map(str, seeds))}). On each, this project runs at several margins (*safety*, in
standard errors), without and with handoff (`{HANDOFF}` with its guard: the defaults, but for `token`). The core is the
service's own. Costs count the tokens that were generated, a large one at {LARGE_TOKEN} small ones, in mean small
answers of the offline set. *On target* is by expected micro-F1, against the goals of the oracle without handoff."""


def _ratio(results: dict[str, Any], levers: str, cost: str, safety: float) -> tuple[float, Interval]:
    return next(
        (one["ratio"], one["interval"])
        for one in results["at_equal_compliance"]
        if (one["levers"], one["cost"], one["safety"]) == (levers, cost, safety)
    )


def _findings(results: dict[str, Any]) -> str:
    safety, rows = results["safety"], results["rows"]
    (sequential, of_sequential), (paper, of_paper) = (_ratio(results, "handoff", cost, safety) for cost in COSTS)
    change = _change_of_held(_service(rows, "handoff", safety), _service(rows, "none", safety))
    half = _half(None if change.half is None else 100.0 * change.half, 1)
    return f"""- With the handoff the same share of blocks on target costs **{sequential:.3f}** {between(of_sequential)}
  of what it costs without, sequentially, and {paper:.3f} {between(of_paper)} as the paper counts.
- At the same margin ({safety:g}) blocks on target change by {signed(100.0 * change.mean, 1)} {half} points. Where the
  target is out of reach, a block is lost: the goal is the best that the large model reaches alone, and answers that go
  on from the small one's do not reach it."""


def _change_of_held(ours: Sequence[Row], without: Sequence[Row]) -> Difference:
    pairs = zip(ours, without, strict=True)
    return difference([one["expected_on_target"] - other["expected_on_target"] for one, other in pairs])


def _equal(results: dict[str, Any]) -> str:
    margins = sorted({one["safety"] for one in results["at_equal_compliance"]})
    held = frontiers(results["rows"])["none"]
    weights = np.ones(len(held.column("seed")))
    shares = dict(zip(held.safeties, held.held(weights).tolist(), strict=True))
    head = [f"{title}, at {percent(shares[margin], 1)} on target" for margin in margins for title in COSTS.values()]
    rows = []
    for levers, title in TITLES.items():
        if levers != "none":
            cells = [_ratio(results, levers, cost, margin) for margin in margins for cost in COSTS]
            rows.append([title, *(f"{ratio:.3f} {between(found)}" for ratio, found in cells)])
    named = " and ".join(f"{margin:g}" for margin in margins)
    return f"""{table(("levers", *head), rows)}

Cost over that without. The shares on target are those without handoff at a safety of {named}; costs at that share
are read off a straight line through each frontier's margins (logarithm of cost on share). In brackets: 95 % intervals
of a bootstrap over streams ({ROUNDS:,} rounds), in which both sides have the same streams. The handoff was run at two
margins only, so that its line is less certain."""


def _same_margin(results: dict[str, Any]) -> str:
    safety, rows = results["safety"], results["rows"]
    without = _service(rows, "none", safety)
    shown = []
    for levers, title in TITLES.items():
        ours = _service(rows, levers, safety)
        if levers != "none":
            changes = [
                difference([one[name] / other[name] - 1.0 for one, other in zip(ours, without, strict=True)])
                for name in COSTS
            ]
            held = _change_of_held(ours, without)
            cells = [f"{1.0 + change.mean:.3f} {_half(change.half, 3)}" for change in changes]
            shown.append([title, *cells, f"{signed(held.mean)} {_half(held.half, 3)}"])
    head = ("levers", *COSTS.values(), "blocks on target, change")
    return f"""{table(head, shown)}

Safety {safety:g} on both sides: means of paired ratios and differences over streams, with half their 95 % intervals
(Student's t). Less certain than the table above, since a margin with more blocks on target also costs more."""


def _margins(results: dict[str, Any]) -> str:
    rows = [
        [TITLES[levers], f"{safety:g}", *_figures(_service(results["rows"], levers, safety))]
        for levers, frontier in frontiers(results["rows"]).items()
        for safety in frontier.safeties
    ]
    return table(("levers", "safety", *_FIGURES), rows)


def _static(rows: Sequence[Row]) -> str:
    titles = {"static": "Static (the paper)", "oracle": "Oracle by phase"}
    return f"""{table(("policy", *_FIGURES), [[title, *_figures(_of(rows, name))] for name, title in titles.items()])}

Without handoff. The static calibration is the paper's: an isotonic map and the cheapest threshold, once, on 4,000
labels."""


_FIGURES = (
    "on target",
    "shortfall",
    "large ran",
    "sequential, tokens",
    "paper's, tokens",
    "sequential, calls",
    "paper's, calls",
)


def _figures(rows: Sequence[Row]) -> list[str]:
    held = difference([row["expected_on_target"] for row in rows])
    costs = [f"{_mean(rows, name):.3f}" for name in ("sequential_tokens", "paper_tokens", "sequential", "paper")]
    share = f"{percent(held.mean, 1)} {_half(None if held.half is None else 100.0 * held.half, 1)}".strip()
    return [share, f"{_mean(rows, 'shortfall'):.4f}", percent(_mean(rows, "escalated"), 1), *costs]


def _phases(results: dict[str, Any]) -> str:
    rows, safety = results["rows"], results["safety"]
    compared = [_service(rows, levers, safety) for levers in TITLES]
    costs, held = (
        [np.mean([row[f"{name}_by_phase"] for row in some], axis=0).tolist() for some in compared]
        for name in ("sequential_tokens", "expected_on_target")
    )
    shown = [
        [phase.title, f"{without:.2f}", f"{ours / without:.3f}", *map(percent, shares)]
        for phase, without, ours, shares in zip(PHASES, *costs, zip(*held, strict=True), strict=False)
    ]
    head = ("phase", "cost without", "ratio, handoff", "on target, without", "on target, handoff")
    return f"""{table(head, shown)}

Sequential cost by tokens at a safety of {safety:g}."""


def _doings(results: dict[str, Any]) -> str:
    ours = _service(results["rows"], "handoff", results["safety"])
    ended = sum(row["handoff_ended"] for row in results["rows"] if row["policy"] == "service")
    rows = [
        ["other entities than without handoff, of large answers that are served", percent(_mean(ours, "differs"), 1)],
        ["asked again, since what followed was no valid answer", percent(_mean(ours, "asked_again"), 1)],
        ["runs in which the guard ended the handoff", str(ended)],
    ]
    return table(("handoff", f"at a safety of {results['safety']:g}"), rows)


_NOTES = f"""All answers are those of the two models, greedy, under `{HANDOFF}`
(`python -m research.recorded.answers` asked both for all 15,000 recorded queries).

Not priced: reading, and the router's CPU time for streamed calls. Prices by tokens know nothing of batching."""


def _of(rows: Sequence[Row], policy: str) -> list[Row]:
    return [row for row in rows if row["policy"] == policy]


def _service(rows: Sequence[Row], levers: str, safety: float) -> list[Row]:
    return [row for row in _of(rows, "service") if (row["levers"], row["safety"]) == (levers, safety)]


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _half(half: float | None, digits: int) -> str:
    return "" if half is None else f"± {half:.{digits}f}"
