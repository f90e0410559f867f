"""The stored report of a campaign and a soak, as a page.

Example: python -m tests.faults.page docs/results/chaos/campaign.json docs/results/chaos/soak.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_HARMS = ("lost", "doubled", "contradictory", "other", "not recovered")
_HOW = """\
Two routers, a join and a fit run as processes under 40 queries a second, labels (repeated, corrected and withdrawn ones
too) and refits. After each kind of fault an independent checker (`tests/faults/checker.py`) reads all topics with
`read_committed`. *Lost*, *doubled* and *contradictory* are queries, labels, traffic counts and versions; *other* is
content that was altered or reordered, labels set aside, or drift reported on the stationary stream. *Recovery* runs
from the end of the fault to the next commit of the stage, process start included. *Ended* counts processes that ended
by themselves, with exit code 1 and one line, and were started again as a supervisor would."""

_HOW_SOAKED = """\
A drawn fault every 10 s, or when the one before is over. Memory is the resident set; its slope is least squares over
each process's lives without their first 30 s, or what `--warm-up` says. `router-0` is never killed."""


def page(campaign: Mapping[str, Any], soak: Mapping[str, Any] | None = None) -> str:
    total = campaign["total"]
    parts = [
        "# Faults",
        f"What {total['faults']} faults on a real broker did to the service: {_harm(total)}.",
        _HOW,
        _receipt(campaign),
        _kinds(campaign["kinds"]),
        *_findings(campaign),
        "[What happens under each fault](chaos/what-happens.md), and which other tests show it.",
        "## Where processes were killed",
        "Kills at each step (`tests/faults/fault_points.py`); *during* is a moment within the call.",
        _steps(campaign["kills_by_step"]),
        *([] if soak is None else _soak(soak)),
    ]
    return "\n\n".join(parts) + "\n"


def _harm(total: Mapping[str, Any]) -> str:
    return ", ".join(f"{total[name]} {name}" for name in _HARMS)


def _receipt(made: Mapping[str, Any]) -> str:
    return (
        f"```console\n$ {made['command']}\n```\n\nSeed {made['seed']}, {made['minutes']} minutes, {made['machine']}, "
        f"which other work shared: times are upper bounds. Commit {made['commit']}, {made['began_at'][:10]}."
    )


def _kinds(kinds: Iterable[Mapping[str, Any]]) -> str:
    columns = ("faults", *_HARMS, "ended", "queries", "dead_letters")
    heads = ("kind", *(column.replace("_", " ") for column in columns), "recovery p50", "p99")
    rows = [[one["kind"], *(str(one[column]) for column in columns), *_seconds(one["recovery_s"])] for one in kinds]
    return _table(heads, rows)


def _seconds(recovery: Mapping[str, float]) -> list[str]:
    return [f"{recovery[name]:.1f} s" if name in recovery else "–" for name in ("p50", "p99")]


def _findings(made: Mapping[str, Any]) -> list[str]:
    """Return what was found, line by line; nothing where nothing was."""
    lines = [f"- {line}" for name in ("findings", "not_recovered", "ended") for line in made[name]]
    return ["## What was found", "\n".join(lines)] if lines else []


def _steps(steps: Mapping[str, int]) -> str:
    moments = ("before", "during", "after")
    split = {name: name.rpartition(", ") for name in steps}
    struck = dict.fromkeys(step for step, _, moment in split.values() if moment in moments)
    rows = [[step, *(str(steps.get(f"{step}, {moment}", "–")) for moment in moments)] for step in struck]
    other = [[name, "", "", str(count)] for name, count in steps.items() if split[name][2] not in moments]
    return _table(("step", *moments), [*rows, *other])


def _soak(soak: Mapping[str, Any]) -> list[str]:
    faults = sum(one["faults"] for one in soak["kinds"])
    return [
        "## Soak",
        f"{faults} faults, {soak['queries']} queries: {_harm(soak['total'])}.",
        _HOW_SOAKED,
        _receipt(soak),
        *_findings(soak)[1:],
        _memory(soak["memory"]),
    ]


def _memory(memory: Mapping[str, Any]) -> str:
    rows = []
    for name, one in memory.items():
        shown = "too short" if one["mib_per_minute"] is None else f"{one['mib_per_minute']:+.2f}"
        rows.append([name, shown, f"{one['minutes']:.1f}", str(one["lives"]), f"{one['last_mib']:.0f}"])
    return _table(("process", "MiB a minute", "minutes", "lives", "last MiB"), rows)


def summary(made: Mapping[str, Any]) -> str:
    """Return the tables of a campaign or a soak, with what was found, for the terminal."""
    memory = [_memory(made["memory"])] if "memory" in made else []
    title = f"{made['minutes']} minutes, seed {made['seed']}, {made['machine']}"
    return "\n\n".join([title, _kinds([*made["kinds"], made["total"]]), *memory, *_findings(made)[1:]]) + "\n"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    first = list(heads)
    return "\n".join(f"| {' | '.join(line)} |" for line in (first, ["---"] * len(first), *rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.faults.page", description=__doc__)
    parser.add_argument("campaign", type=Path, help="what --json wrote")
    parser.add_argument("soak", type=Path, nargs="?", help="what --soak --json wrote")
    options = parser.parse_args()
    documents = [json.loads(path.read_text()) for path in (options.campaign, options.soak) if path is not None]
    sys.stdout.write(page(*documents))
