"""What verdicts add to 200 labels a day, and what hostile ones do: real answers, with verdicts in the fit and without.

Examples: python -m research.answers.verdicts                     (minutes of one core; writes docs/results/answers)
          python -m research.answers.verdicts --seeds 1 2 --json

A day has 10,000 queries here, so that a budget of 2 % is 200 labels a day. Users judge 5 % of the exact answers that
they are served and 10 % of the others, and err in 5 and 15 % of these verdicts. `hostile`: 30 % of verdicts are "wrong"
whatever was served, throughout; `campaign`: from the middle of the stream on; `flattering`: "right" from there on.
`perfect` users judge 15 % of all answers and never err, and with `trusting` the fit believes them as if it knew that: a
bound on what verdicts could add. `twice the labels`: 400 a day and no verdict.

In the fit, recent verdicts are compared with earlier ones at the same u, for the answers of either model. What they
differ by is read as a change of the share of exact answers, by the sensitivity and specificity that queries with both a
label and a verdict show, and as a change of micro-F1 by what labels say of answers that are not exact. It is weighed
with what recent labels say, by its standard error and an allowance for a change of the users themselves; it is ignored
below 20 queries that have both, and where labels contradict it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from recalibrator.fit.data.label_table import Change, are_in
from recalibrator.fit.decide.candidate import Candidate, Part, View
from recalibrator.fit.decide.threshold import weigh
from research import seeds
from research.__main__ import provenance
from research.answers.pairs import PAIRS
from research.answers.policies import SAFETY, offline_labels
from research.answers.scoring import row_of, score
from research.answers.streams import Judged, draw_judged
from research.paper.tables import table
from research.recorded.service import Service, time_of
from research.recorded.simulate import Routed, simulate
from research.recorded.stream import WORKLOAD, Floats, Integers, Mask, query_id
from research.results_json import receipt, rounded
from schemas import LabelledExample
from schemas.event import to_us

OUT = Path("docs/results/answers/verdicts.md")
LABELS = 0.02
BOTH_LEAST, VERDICTS_LEAST, LABELS_LEAST = 20, 50, 50
HALF_LIFE = 5_000.0
"""In queries, of recent verdicts."""
BINS = 8


class Users(NamedTuple):
    """Who judges: shares of the exact answers that they are served, and of the others."""

    judged: tuple[float, float] = (0.05, 0.10)
    true: tuple[float, float] = (0.95, 0.85)
    hostile: float = 0.0
    #: Share of the stream before hostile ones come.
    since: float = 0.0
    #: What these say.
    say_wrong: bool = True

    def verdicts(self, exact: Mask, rows: Integers, draws: Floats, total: int) -> tuple[Mask, Mask]:
        """Return which answers are judged, and which of these verdicts are "wrong"."""
        judged = draws[0] < np.where(exact, *self.judged)
        wrong = np.where(draws[1] < np.where(exact, *self.true), ~exact, exact)
        hostile = (draws[2] < self.hostile) & (rows >= self.since * total)
        return judged, np.where(hostile, self.say_wrong, wrong)


@dataclass
class VerdictShift(Part):
    """The candidate: the estimate moved by verdicts, as far as labels bear them out.

    ``doubt``: allowance for a change of the users, in typical changes of the world (``drift_scale``). ``contradicted``:
    standard errors of the difference from what labels say, beyond which verdicts are ignored.
    """

    doubt: float = 1.0
    contradicted: float = 2.0
    _verdicts: list[tuple[int, float, bool, bool]] = field(default_factory=list)
    _labels: list[tuple[bool, bool, int, int]] = field(default_factory=list)
    _both: Floats = field(default_factory=lambda: np.zeros((2, 2)))

    def take_label(self, example: LabelledExample, change: Change | None) -> None:
        """Note a verdict alone, or a label and the verdict beside it."""
        large = example.reason not in ("kept", "degraded")
        if not example.is_counted:
            if example.uncertainty is not None:
                u = min(max(example.uncertainty, 1e-6), 1.0 - 1e-6)
                self._verdicts.append(
                    (to_us(example.routed_at), float(np.log(u / (1.0 - u))), large, example.verdict == "wrong")
                )
        elif change == "added" and (served := example.served) is not None:
            assert example.gold_count is not None
            exact = bool(example.served_exact)
            self._labels.append((large, exact, 2 * served.true_positives, served.predicted + example.gold_count))
            if example.verdict is not None:
                self._both[int(not exact), int(example.verdict == "wrong")] += 1.0

    def contribute(self, candidate: Candidate, view: View) -> Candidate | None:
        """Move what is expected of either model's served answers, and narrow what is not known of it."""
        if view.current is None or self._both.sum() < BOTH_LEAST:
            return None
        estimate = candidate.estimate
        values, variance = [estimate.kept.value.copy(), estimate.escalated.value.copy()], estimate.rectifier.variance
        variance = variance.copy()
        split = estimate.rectifier.split
        for side, cells in enumerate((slice(0, split + 1), slice(split + 1, None))):
            said = self._said(bool(side), view)
            if said is None or not len(values[side][cells]):
                continue
            labels = estimate.rectifier.value[side][cells][0]
            found = self._weighed(said, float(labels), float(variance[side, side]), view)
            if found is not None:
                values[side][cells] += found[0] - labels
                variance[side, side] = found[1]
        moved = replace(
            estimate,
            kept=replace(estimate.kept, value=values[0]),
            escalated=replace(estimate.escalated, value=values[1]),
            rectifier=replace(estimate.rectifier, variance=variance),
        )
        policies = weigh(moved, view.labels.grid.edges, view.labels.target, candidate.exploration)
        return replace(candidate, estimate=moved, policies=policies)

    def _said(self, large: bool, view: View) -> _Said | None:
        """Return by how much verdicts say that E[z] of one model's served answers has changed."""
        differs = self._more_wrong(large, view)
        labels = np.array([one[1:] for one in self._labels[-4_000:] if one[0] == large], dtype=np.float64)
        if differs is None or len(labels) < LABELS_LEAST:
            return None
        exact, z = labels[:, 0] > 0.0, labels[:, 1] - view.labels.target * labels[:, 2]
        right_wrong, wrong_wrong = (self._both[:, 1] + 0.5) / (self._both.sum(axis=1) + 1.0)
        telling = wrong_wrong - right_wrong
        if telling < 0.2 or exact.all() or not exact.any():
            return None
        # Users judge bad answers more often: what they show moves along the same odds ratio as labels' share of errors.
        errors, rate = 1.0 - exact.mean(), float(np.clip((differs[2] - right_wrong) / telling, 0.02, 0.98))
        by_odds = min(1.0, errors * (1.0 - errors) / (rate * (1.0 - rate)))
        worth = by_odds / telling * float(z[exact].mean() - z[~exact].mean())
        return _Said(-worth * differs[0], worth * differs[1], float(labels[:, 2].mean()))

    def _more_wrong(self, large: bool, view: View) -> tuple[float, float, float] | None:
        """Return how much more often recent verdicts are "wrong" than those behind the labels, its error, the rate."""
        circumstances = view.circumstances
        us, logit, of_large, wrong = np.array(self._verdicts, dtype=np.float64).reshape(-1, 4).T
        here, begins_us = of_large == large, circumstances.changed_us or 0
        if circumstances.spans is not None:
            known = here & are_in(us, circumstances.spans)
        else:
            known = here & (us >= begins_us) if circumstances.discounted else here
        if known.sum() < VERDICTS_LEAST:
            return None
        edges = np.quantile(logit[here], np.linspace(0.0, 1.0, BINS + 1)[1:-1])
        cell, mean = np.searchsorted(edges, logit), wrong[known].mean()
        count, bad = (np.bincount(cell[known], some, minlength=BINS) for some in (None, wrong[known]))
        expected = ((bad + 5.0 * mean) / (count + 5.0))[cell]
        age = (us.max() - us) * 1e-6 / (time_of(1) - time_of(0)).total_seconds()
        weight = 2.0 ** (-age / HALF_LIFE) * here * (us >= begins_us)
        total = weight.sum()
        rate = float((weight * expected).sum() / max(total, 1e-9))
        noise = rate * (1.0 - rate) * (np.square(weight).sum() / max(total, 1e-9) ** 2 + 1.0 / known.sum())
        if total < VERDICTS_LEAST / 2:
            return None
        return float((weight * (wrong - expected)).sum() / total), float(np.sqrt(noise)), rate

    def _weighed(self, said: _Said, labels: float, variance: float, view: View) -> tuple[float, float] | None:
        """Return the correction by labels and verdicts, and its variance; None where verdicts are not believed."""
        typical, unseen = (
            (scale * said.size) ** 2 for scale in (view.constants.drift_scale, view.constants.unseen_scale)
        )
        if not 1e-12 < variance < unseen:
            return None
        of_labels = variance * unseen / (unseen - variance)
        residual = labels * (typical + of_labels) / typical
        of_verdicts = said.error**2 + self.doubt**2 * typical
        if abs(said.change - residual) > self.contradicted * np.sqrt(of_verdicts + of_labels):
            return None
        precision = 1.0 / typical + 1.0 / of_labels
        mean = (labels * precision + said.change / of_verdicts) / (precision + 1.0 / of_verdicts)
        return float(mean), 1.0 / (1.0 / variance + 1.0 / of_verdicts)


class _Said(NamedTuple):
    """A change of E[z] and its standard error, for answers of this E[d]."""

    change: float
    error: float
    size: float


class WithVerdicts(Service):
    """The core, told what users say at once, and of labels as they come.

    ``part`` takes the place of what shows verdicts; None: they are shown alone. ``said`` is what users said, by query.
    """

    def __init__(self, judged: Judged, seed: int, users: Users | None, part: Part | None, budget: float) -> None:
        super().__init__(
            judged.target,
            SAFETY,
            fields=PAIRS[judged.pair].fields,
            offline=offline_labels(judged.offline),
            budget=budget,
        )
        if part is not None:
            self.core._parts["verdicts"] = part  # noqa: SLF001 - in the place of what shows them
        self._users, self._total = users, len(judged.stream)
        self._draws = np.random.default_rng((seed, 7)).uniform(size=(3, self._total))
        self.said: dict[str, str] = {}

    def see(self, routed: Routed) -> None:
        """Hand on what users say of a batch, then its traffic."""
        if self._users is not None:
            outcomes, ran = routed.outcomes, routed.ran
            hits = np.where(ran, outcomes.large_hits, outcomes.small_hits)
            named = np.where(ran, outcomes.large_named, outcomes.small_named)
            exact = (hits == named) & (hits == outcomes.gold)
            judged, wrong = self._users.verdicts(exact, routed.rows, self._draws[:, routed.rows], self._total)
            for place in np.flatnonzero(judged):
                self._observe(self._verdict(routed, int(place), "wrong" if wrong[place] else "right"))
        super().see(routed)

    def _verdict(self, routed: Routed, place: int, verdict: str) -> LabelledExample:
        row, u = int(routed.rows[place]), float(routed.outcomes.uncertainty[place])
        self.said[query_id(row)] = verdict
        return LabelledExample.model_validate(
            {
                "query_id": query_id(row),
                "workload": WORKLOAD,
                "uncertainty": None if np.isnan(u) else u,
                **dict.fromkeys(("small_exact", "small", "large", "gold_count")),
                "large_probability": 1.0 if routed.above[place] else float(routed.exploration[place]),
                "label_probability": 0.0,
                "label_requested": bool(routed.labelled[place]),
                "reason": "threshold" if routed.above[place] else "exploration" if routed.explored[place] else "kept",
                "routed_at": time_of(row),
                "labelled_at": time_of(row),
                "verdict": verdict,
            }
        )

    def _examples(self, labelled: Routed) -> Iterator[LabelledExample]:
        for example in super()._examples(labelled):
            yield example.model_copy(update={"verdict": self.said.get(example.query_id)})


PERFECT = Users(judged=(0.15, 0.15), true=(1.0, 1.0))
CROWDS: dict[str, Users] = {
    "honest": Users(),
    "hostile": Users(hostile=0.3),
    "campaign": Users(hostile=0.3, since=0.5),
    "flattering": Users(hostile=0.3, since=0.5, say_wrong=False),
    "perfect": PERFECT,
}
ALONE, TWICE, BOUND = "labels alone", "twice the labels", "perfect, trusting"


def variants() -> Iterator[tuple[str, Users | None, Part | None, float]]:
    """Yield what is compared: its name, who judges, the candidate, and the share of queries labelled."""
    yield ALONE, None, None, LABELS
    yield TWICE, None, None, 2.0 * LABELS
    for name, users in CROWDS.items():
        if users.hostile and users.say_wrong:
            yield f"{name}, shown", users, None, LABELS
        yield f"{name}, in the fit", users, VerdictShift(), LABELS
    yield BOUND, PERFECT, VerdictShift(doubt=0.0, contradicted=np.inf), LABELS


def run(drawn: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each stream and variant; what is shown alone must route every query as labels alone do."""
    rows: list[dict[str, Any]] = []
    for seed in drawn:
        judged, alone = draw_judged("tuning", seed), None
        for name, users, part, budget in variants():
            service = WithVerdicts(judged, seed, users, part, budget)
            routed = simulate(service, judged.stream)
            alone = routed if alone is None else alone
            rows.append(
                {
                    "seed": seed,
                    "variant": name,
                    "on_target": (found := row_of(score(routed, judged), judged))["on_target"],
                    "regret": found["regret"],
                    "cost": 1.0 + 3.02 * float(routed.ran.mean()),
                    "verdicts": len(service.said) / len(judged.stream),
                    "labelled": float(routed.labelled.mean()),
                    "as_labels_alone": bool((routed.threshold == alone.threshold).all()),
                }
            )
        sys.stderr.write(f"seed {seed}\n")
    return rows


def _summed(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    alone = {row["seed"]: row for row in rows if row["variant"] == ALONE}
    lines = []
    for name in dict.fromkeys(row["variant"] for row in rows):
        some = [row for row in rows if row["variant"] == name]
        on_target, cost = (
            np.array([100.0 * one for one in values])
            for values in (
                [row["on_target"] - alone[row["seed"]]["on_target"] for row in some],
                [row["cost"] / alone[row["seed"]]["cost"] - 1.0 for row in some],
            )
        )
        means = [np.mean([row[what] for row in some]) for what in ("on_target", "regret")]
        same = sum(row["as_labels_alone"] for row in some)
        shown = [
            f"{means[0]:.3f}",
            f"{100 * means[1]:+.1f} %",
            _paired(on_target),
            _paired(cost),
            f"{cost.max():+.1f} %",
        ]
        given = f"{10_000 * np.mean([row['verdicts'] for row in some]):,.0f}"
        lines.append([name, given, *(shown if name != ALONE else [*shown[:2], "", "", ""]), f"{same} of {len(some)}"])
    return lines


def _paired(differences: Floats) -> str:
    count = len(differences)
    half = stats.t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return f"{differences.mean():+.1f} ± {half:.1f}"


_HEAD = (
    "",
    "verdicts a day",
    "on target",
    "regret",
    "points on target",
    "% of cost",
    "worst stream",
    "thresholds as without verdicts",
)
_READ = """*On target* and *regret* are those of the [judge of real answers](README.md). *Points on target* and *% of \
cost* are differences from labels alone on the same stream, with half of a 95 % interval over streams. *Shown*: as the \
service has it, verdicts stand on the status and are in no estimate; *in the fit*: the candidate above."""


def page(rows: Sequence[dict[str, Any]], made: dict[str, Any]) -> str:
    """Return the page."""
    about, _, day, method = (one.replace("\n", " ").strip() for one in (__doc__ or "").split("\n\n"))
    parts = ["# Verdicts beside labels", receipt(made), about, day, method, table(_HEAD, _summed(rows)), _READ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m research.answers.verdicts", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=range(1, 21))
    parser.add_argument("--json", action="store_true", help="print the rows, and write nothing")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    seeds.check("answers", options.seeds)
    with threadpool_limits(1):
        rows = run(options.seeds)
    if options.json:
        print(json.dumps(rounded(rows), indent=1))
        return 0
    made = provenance(["-m", "research.answers.verdicts", *(sys.argv[1:] if arguments is None else arguments)])
    options.out.write_text(page(rows, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
