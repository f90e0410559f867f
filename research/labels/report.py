"""Rows → the page: pol and cost by budget, ours beside rivals, paired differences, and promised beside found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy import stats

from research.answers.experiment import best_margin
from research.labels.walks import BUDGETS, FRONTIER_BUDGETS, SAFETIES
from research.paper.tables import table

Row = dict[str, Any]
_FEW = 2
_TITLES = {"service": "this service", "aci": "ACI", "fixed_rate": "fixed rate of escalation"}
_INTRODUCTION = """Labels are asked for by a budget (`labels = { per_queries = … }`), and nothing else differs: the
same streams, draws and delays. *pol*: share of blocks of 2,000 queries on target; cost over the oracle's. ± is half of
the 95 % interval over streams. The last column is the paired difference of pol to the next larger budget: where it
lies above 0 by more than its ±, more labels were worse than fewer. Static calibration with the margin that is the
cheapest of those which hold what the service holds at 8 %, known afterwards, and a fixed rate take no labels."""


def page(parts: dict[str, Any]) -> str:
    """Return the page; ``parts`` holds, by name, what each run wrote: ``made`` and ``rows``."""
    texts = ["# What labels buy", _INTRODUCTION]
    writers: dict[str, Callable[[list[Row]], list[str]]] = {
        "answers": _answers,
        "frontier": _frontier,
        "drift": _drift,
        "promises": _promises,
    }
    for name, write in writers.items():
        if name in parts:
            made = parts[name]["made"]
            said = f"`{made['command']}`, {made['machine']}, commit {made['commit']}, {made['day']}."
            texts += [_HEADINGS[name], said, *write(parts[name]["rows"])]
    return "\n\n".join(texts) + "\n"


_HEADINGS = {
    "answers": "## On recorded answers",
    "frontier": "## A fifth of the labels, by margin",
    "drift": "## On synthetic drift",
    "promises": "## What the plan promises, and what is found",
}


def _mean(values: Iterable[float], scale: float = 100.0, digits: int = 1) -> str:
    known = np.array(list(values), dtype=float) * scale
    if len(known) < _FEW:
        return f"{known.mean():.{digits}f}"
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return f"{known.mean():.{digits}f} ± {half:.{digits}f}"


def _by_stream(rows: list[Row], **wanted: Any) -> dict[tuple[Any, ...], Row]:
    fit = (row for row in rows if all(row.get(name) == value for name, value in wanted.items()))
    return {(row.get("family"), row["seed"]): row for row in fit}


def _budgets(rows: list[Row]) -> str:
    """Return the table of one set of streams."""
    lines, before = [], None
    for budget in BUDGETS:
        for policy in ("service", "aci"):
            if not _by_stream(rows, policy=policy, labels=budget):
                continue
            found = _by_stream(rows, policy=policy, labels=budget)
            told = ""
            if policy == "service":
                told = (
                    "" if before is None else _mean(found[key]["on_target"] - before[key]["on_target"] for key in found)
                )
                before = found
            lines.append([f"{100 * budget:g} %", _TITLES[policy], *_figures(found.values()), told])
    held = float(np.mean([row["on_target"] for row in _by_stream(rows, policy="service", labels=BUDGETS[0]).values()]))
    by_margin = defaultdict(list)
    for row in rows:
        if row["policy"] == "static":
            by_margin[row["margin"]].append(row)
    means = {
        margin: (float(np.mean([r["on_target"] for r in some])), float(np.mean([r["regret"] for r in some])))
        for margin, some in by_margin.items()
    }
    if by_margin:
        chosen = best_margin(means, held)
        lines.append(["none", "static (the paper)", *_figures(by_margin[0.0]), ""])
        lines.append(["none", f"static, margin {100 * chosen:.2f} points", *_figures(by_margin[chosen]), ""])
        lines.append(["none", _TITLES["fixed_rate"], *_figures(_by_stream(rows, policy="fixed_rate").values()), ""])
    return table(("labels", "policy", "pol, %", "cost, %", "pol less that of more labels, points"), lines)


def _figures(rows: Iterable[Row]) -> list[str]:
    some = list(rows)
    return [_mean(row["on_target"] for row in some), _mean(row["regret"] for row in some)]


def _answers(rows: list[Row]) -> list[str]:
    return [f"{len({row['seed'] for row in rows})} streams of the tuning half.", _budgets(rows)]


def _frontier(rows: list[Row]) -> list[str]:
    lines = [
        [f"{100 * budget:g} %", f"{safety:g}", *_figures(_by_stream(rows, labels=budget, safety=safety).values())]
        for budget in FRONTIER_BUDGETS
        for safety in SAFETIES
    ]
    return [table(("labels", "safety", "pol, %", "cost, %"), lines)]


def _drift(rows: list[Row]) -> list[str]:
    families = list(dict.fromkeys(row["family"] for row in rows))
    told = f"{len({row['seed'] for row in rows})} streams of 120,000 queries of each family: {', '.join(families)}."
    head, lines = ("family", *(f"{100 * budget:g} %" for budget in BUDGETS)), []
    for family in families:
        some = [row for row in rows if row["family"] == family]
        cells = [_figures(_by_stream(some, policy="service", labels=budget).values()) for budget in BUDGETS]
        lines.append([family, *(f"{pol} at {cost}" for pol, cost in cells)])
    return [told, _budgets(rows), "This service by family, pol at cost:", table(head, lines)]


def _promises(rows: list[Row]) -> list[str]:
    lines = []
    rest, falls = [row for row in rows if "errors" in row], [row for row in rows if "fall" in row]
    cost_at_most = {row["seed"]: row["cost"] for row in rest if row["budget"] == max(r["budget"] for r in rest)}
    for budget in dict.fromkeys(row["budget"] for row in rest):
        some, fell = ([row for row in part if row["budget"] == budget] for part in (rest, falls))
        errors = np.abs(np.concatenate([row["errors"] for row in some]))
        inside = np.mean([abs(error) <= row["half_width"] for row in some for error in row["errors"]])
        most = [row for row in rest if row["budget"] == max(r["budget"] for r in rest)]
        promised = np.mean([row["promised_cost"][str(budget)] for row in most]) - 1.0
        found = np.mean([row["cost"] / cost_at_most[row["seed"]] for row in some]) - 1.0
        lines.append(
            [
                f"{100 * budget:g} %",
                f"±{np.mean([row['half_width'] for row in some]):.4f}",
                f"±{np.quantile(errors, 0.95):.4f} ({inside:.0%} inside)",
                f"{100 * promised:+.1f}",
                f"{100 * found:+.1f}",
                _median(row["promised"] for row in fell),
                _median(row["found"] for row in fell),
            ]
        )
    head = (
        "labels",
        "micro-F1 known to: promised",
        "found, 95 % of errors",
        "cost over that at 8 %, %: promised",
        "found",
        "a fall is found after, queries: promised",
        "found",
    )
    fall = 100.0 * np.mean([row["fall"] for row in falls])
    told = (
        f"{len({row['seed'] for row in rest})} quiet streams of 120,000 queries, looked at from 40,000 on, and "
        f"{len({row['seed'] for row in falls})} of 200,000 in whose middle quality falls by {fall:.1f} points that "
        "labels alone show (both models fail alike). What is promised counts from when labels are in; they "
        "took 2,000 queries on average. Found is when half of the fall stands in the estimate. Medians; *never* "
        "where half of the streams had not shown it."
    )
    return [told, table(head, lines)]


def _median(values: Iterable[float | None]) -> str:
    middle = float(np.median([np.inf if value is None else value for value in values]))
    return "never" if np.isinf(middle) else f"{middle:,.0f}"
