"""Rows of both benchmarks → one page: what each policy holds and costs, beside two twins that humble, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from research.paper.tables import table
from research.results_json import receipt
from research.rivals.grids import CONSTANT, OURS, Row, worth

Value = Callable[[Row], float]
_ABOUT = {
    "answers": "## Recorded answers that drift and come back\n\nStreams, blocks and costs are those of "
    "[the judge of real answers](../answers/unseen/README.md), kinds of the tuning half; the offline labels are drawn "
    "per stream, so that their chance is in every ±.",
    "drift": "## Synthetic drift with a known oracle\n\nNineteen families of 200,000 queries each "
    "(`python -m research.drift`), the offline labels drawn per seed; chosen on streams half as long. Costs: over an "
    "oracle that knows all expectations.",
}
_BEGINS = """# Rivals, each with its best knobs

{made}

Each rival has a grid of its own: margins above the target, steps, windows of 1,000 and 4,000 labels, exploration in
full or a fifth of it. The variant that is *worth* most (share of blocks on target less cost above the oracle's; being
cheaper than the oracle by missing the target earns nothing) is chosen on tuning seeds, and walks other seeds, which are
reported. This project runs with its defaults. Beside each policy stand two twins of the same cost: escalation at
random, as often in each block, and one threshold for ever. The last row is the one threshold that is worth most, chosen
in hindsight for each stream. ± is half of a 95 % interval over seeds."""
_NOT_RUN = """## Rivals that cannot be run here

As their documentation and papers describe them; none decides by how sure a small model is of its answer.

| router | why not |
|---|---|
| RouteLLM | scores the text before any answer, by models trained on preferences between chat models; its threshold \
sets a share of calls, for which the rate-based router (`fixed rate`) stands |
| ParetoBandit | holds a budget, no target on quality: a bandit on the prompt's embedding, with a reward a query; \
here few have one, late, and the recordings hold no embeddings |
| LiteLLM | balances load, latency, budgets and failures between deployments; none of its strategies reads labels |
| semantic-router | sends a text to the route whose examples are nearest; it knows neither answers nor a target |"""


def page(found: Mapping[str, Any]) -> str:
    """Return the page of the benchmarks that have been run."""
    first = next(iter(found.values()))
    parts = [_BEGINS.format(made=receipt(first["made"]))]
    for name, document in found.items():
        seeds = [f"{min(some)} to {max(some)}" for some in _seeds(document)]
        parts += [
            _ABOUT[name],
            f"Chosen on seeds {seeds[0]}, reported on {seeds[1]}.",
            _of(document),
            _verdict(document),
        ]
    return "\n\n".join([*parts, _NOT_RUN]) + "\n"


def _seeds(document: Mapping[str, Any]) -> list[set[int]]:
    return [{row["seed"] for row in document[part]} for part in ("tuning", "rows")]


def _of(document: Mapping[str, Any]) -> str:
    header = ("policy", "on target", "cost over the oracle", "worst kind", "worth", "worth less ours", *_TWINS.values())
    by_rival = _by_rival(document["rows"])
    rows = []
    for rival in sorted(by_rival, key=lambda name: (name == CONSTANT, -worth(by_rival[name]))):
        own, knobs = by_rival[rival], document["chosen"].get(rival)
        twins = ["", ""] if rival == CONSTANT else [_share(_over_seeds(own, _column(one))[0]) for one in _TWINS]
        lag = "" if rival == OURS else _shown(_less(own, by_rival[OURS]))
        cells = [_shown(_over_seeds(own, _column(one))) for one in ("on_target", "regret")]
        title = f"**{rival}**" if rival == OURS else f"{rival} ({knobs})" if knobs else rival
        rows.append([title, *cells, _worst(own), _share(worth(own)), lag, *twins])
    return table(header, rows)


_TWINS = {"random": "at random", "constant": "one threshold"}


def _verdict(document: Mapping[str, Any]) -> str:
    """Say in plain words who is worth most, and what that is beside what nobody can know."""
    by_rival = _by_rival(document["rows"])
    ours, hindsight = by_rival[OURS], worth(by_rival[CONSTANT])
    rivals = {name: rows for name, rows in by_rival.items() if name not in (OURS, CONSTANT)}
    best = max(rivals, key=lambda name: worth(rivals[name]))
    ahead, half = _less(ours, rivals[best])
    order = "first" if ahead > half else "not told apart from the best rival" if ahead > -half else "behind"
    cheaper = [name for name, rows in rivals.items() if _mean(rows, "regret") < _mean(ours, "regret")]
    steadier = [name for name, rows in rivals.items() if _mean(rows, "on_target") > _mean(ours, "on_target")]
    return (
        f"**Verdict.** This project is {order}: {100 * ahead:+.1f} ± {100 * half:.1f} points of worth against {best}. "
        f"Cheaper than it: {', '.join(cheaper) or 'none'}; more blocks on target: {', '.join(steadier) or 'none'}. "
        f"One threshold chosen in hindsight is worth {100 * hindsight:.1f}, against {100 * worth(ours):.1f}: "
        "who knew each stream beforehand would do better with no service at all."
    )


def _by_rival(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["rival"], []).append(row)
    return found


def _column(name: str) -> Value:
    return lambda row: float(row[name])


def _mean(rows: Sequence[Row], name: str) -> float:
    return _over_seeds(rows, _column(name))[0]


def _over_seeds(rows: Sequence[Row], value: Value) -> tuple[float, float]:
    return _interval(_by_seed(rows, value))


def _by_seed(rows: Sequence[Row], value: Value) -> list[float]:
    return [
        float(np.mean([value(row) for row in rows if row["seed"] == seed]))
        for seed in sorted({r["seed"] for r in rows})
    ]


def _less(rows: Sequence[Row], others: Sequence[Row]) -> tuple[float, float]:
    """Return how much more worth some rows are than others of the same seeds, and half its interval."""
    own, other = (_by_seed(some, lambda row: worth([row])) for some in (rows, others))
    return _interval([a - b for a, b in zip(own, other, strict=True)])


def _interval(values: Sequence[float]) -> tuple[float, float]:
    count = len(values)
    half = stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return float(np.mean(values)), float(half)


def _worst(rows: Sequence[Row]) -> str:
    """Return the kind of drift in which fewest blocks are on target, and their share."""
    held: dict[str, list[float]] = {}
    for row in rows:
        for kind, share in row.get("kinds", {row.get("family", ""): row["on_target"]}).items():
            held.setdefault(kind, []).append(share)
    worst = min(held, key=lambda kind: np.mean(held[kind]))
    return f"{worst} {_share(float(np.mean(held[worst])))}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _shown(pair: tuple[float, float]) -> str:
    return f"{100 * pair[0]:.1f} ± {100 * pair[1]:.1f} %"
