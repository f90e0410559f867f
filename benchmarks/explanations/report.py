"""The results as a page: a row a scenario, quiet streams and cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results_json import write_results

_HEAD = """# What moved

Streams of {queries} queries, of which those from {shift_at} on are hit by a shift with a known cause. Texts and the
small model's answers are real (the demo's small model, live); segments, latencies and labels are drawn. An explanation
is right when the trait that caused the shift stands first, with the segment where the shift is confined to one.

`{command}` (commit {commit}, {machine}, Python {python}, {day}; seed {seed}).

"""


_BESIDE = """
## Beside river's detectors

The same streams, series and counts, and the same order of what is named; only the test of what moved differs. ADWIN
sees each query as 0 or 1 in each category, KSWIN each summary's share (`benchmarks/explanations/river_monitors.py`).
River corrects for the number of detectors nowhere: their bounds are divided by it, but for river's default. Streams of
13,000 queries, shifted from 10,000 on; a test that takes minutes for a stream has seen a few of them.

"""


_COSTS = """
CPU, memory and restart in this table: `{command}` (commit {commit}, {machine}, {day}).
"""


def write(results: dict[str, Any], made: dict[str, Any], folder: Path) -> None:
    """Write ``results.json`` and ``README.md``.

    Parameters
    ----------
    results : dict
        From :func:`benchmarks.explanations.experiment.run`.
    made : dict
        Command, commit, machine, Python, day and seed.
    folder : Path
        Exists already.
    """
    write_results(folder, {"made": made, "results": results})
    (folder / "README.md").write_text(page(results, made), encoding="utf-8")


def page(results: dict[str, Any], made: dict[str, Any]) -> str:
    """Return the page."""
    outcomes = results["outcomes"]
    right = sum(one["is_right"] for one in outcomes)
    early = sum(one["early"] for one in outcomes)
    parts = [
        _HEAD.format(**made, queries="8,000", shift_at="5,000"),
        f"**Right: {right} of {len(outcomes)} ({right / len(outcomes):.0%}).**\n",
        f"\nExplanations of before a shift: {early}.\n",
        _scenarios(outcomes),
        "\n## Where nothing moved\n",
        _table(
            ("stream", "queries", "explanations"),
            [(title, f"{one['queries']:,}", one["explanations"]) for title, one in results["quiet"].items()],
        ),
        "\nIn bursts, eight queries come one after another from one source and in one kind of text.\n",
        *[f"\n- {sentence}" for one in results["quiet"].values() for sentence in one["sentences"]],
        *([_BESIDE, _beside(results["beside_river"])] if results["beside_river"] else []),
        *([_COSTS.format(**made["costs"])] if "costs" in made else []),
        "\n## Cost\n",
        _cost(results["cost"]),
        "\n## What was said\n",
        *[f"\n- {name}: {sentence}" for name, sentence in _sentences(outcomes).items()],
        "\n",
    ]
    return "".join(parts)


def _scenarios(outcomes: Sequence[dict[str, Any]]) -> str:
    rows = []
    for name in dict.fromkeys(one["scenario"] for one in outcomes):
        ours = [one for one in outcomes if one["scenario"] == name]
        named = dict.fromkeys(f"{one['named'] or 'nothing'} {one['segment']}".strip() for one in ours)
        explained = [one["explained"] for one in ours if one["explained"] is not None]
        rows.append(
            (
                name,
                f"{sum(one['is_right'] for one in ours)} of {len(ours)}",
                ", ".join(named),
                _median([one["delay"] for one in ours]),
                f"{np.median(explained):.0%}" if explained else "–",
            )
        )
    heads = ("shift", "right", "named first", "queries until then", "of the change in escalation")
    return "\n" + _table(heads, rows)


def _beside(rows: Sequence[dict[str, Any]]) -> str:
    heads = (
        "test",
        "right first",
        "false before a shift",
        "mean queries until named",
        "false by 100,000 quiet queries: as drawn, in bursts",
        "CPU a summary",
        "200 series",
        "equal after a restart",
    )
    found = []
    for one in rows:
        delay = "–" if one["mean_delay"] is None else f"{one['mean_delay']:,.0f} ({one['noticed']} named)"
        quiet = ", ".join(f"{count * 100_000 / one['quiet_queries']:,.0f}" for count in one["quiet"])
        found.append(
            (
                one["test"],
                f"{one['right']} of {one['scenarios']}",
                one["early"],
                delay,
                f"{quiet} (of {one['quiet_queries']:,})",
                f"{one['us_by_summary'] / 1e3:,.1f} ms",
                f"{one['kilobytes_200_series']:,.0f} kB",
                "yes" if one["restart"] else "no",
            )
        )
    return _table(heads, found) + _verdict(rows)


def _verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Say in a sentence whether any of river's tests is better on these streams."""
    ours, rivals = rows[0], rows[1:]

    def rank(one: dict[str, Any]) -> tuple[float, float]:
        return one["right"] / one["scenarios"], -(one["early"] + sum(one["quiet"]) * 100_000 / one["quiet_queries"])

    better = [one["test"] for one in rivals if rank(one) > rank(ours)]
    if better:
        return f"\nMore right than the product, or as right with fewer false explanations: {', '.join(better)}.\n"
    return "\nNone of river's tests names more causes rightly, or as many with fewer false explanations.\n"


def _cost(cost: dict[str, float]) -> str:
    rows = [
        ("the join's counts, a query (two segments)", f"{cost['join_us_by_query']:,.0f} µs of CPU"),
        (f"monitors, a summary of 50 queries ({cost['series']:.0f} series)", f"{cost['us_by_summary']:,.0f} µs of CPU"),
        ("the status's part, where nothing moved", f"{cost['status_us']:,.0f} µs of CPU"),
        ("a summary's record", f"{cost['summary_bytes']:,.0f} bytes, {cost['of_them_profiles']:,.0f} of them profiles"),
        ("counts of 200 series", f"{cost['kilobytes_200_series']:,.0f} kB"),
        ("in the snapshot", f"{cost['snapshot_kilobytes']:,.0f} kB"),
    ]
    return _table(("what", "cost"), rows)


def _sentences(outcomes: Sequence[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in outcomes:
        found.setdefault(one["scenario"], one["sentence"] or "nothing.")
    return found


def _median(values: Sequence[int | None]) -> str:
    known = [one for one in values if one is not None]
    return f"{np.median(known):,.0f}" if known else "–"


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"
