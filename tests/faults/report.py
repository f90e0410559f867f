"""A campaign as JSON for scripts, as a table for the terminal, and as a page."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tests.faults import placement
from tests.faults.campaign import Row, Soak
from tests.faults.fault_points import FAULT_POINTS
from tests.support.checkout import ROOT

_SHOWN_FINDINGS = 20


def machine_class() -> str:
    """Return what the figures were measured on, in a few words."""
    return f"{os.cpu_count()} virtual cores, {platform.system()}, Python {platform.python_version()}"


def document(rows: Sequence[Row], command: str, seed: int, began_at: datetime) -> dict[str, Any]:
    return {
        "command": command,
        "seed": seed,
        "machine": machine_class(),
        "commit": commit(),
        "began_at": began_at.isoformat(timespec="seconds"),
        "minutes": round((datetime.now(UTC) - began_at).total_seconds() / 60.0, 1),
        "harmless": is_harmless(rows),
        "total": _figures("all", rows),
        "kinds": [_figures(row.kind, [row]) for row in rows],
        "kills_by_step": _kills_by_step(rows),
        "findings": [f"{row.kind}: {one.harm} {one.what}" for row in rows for one in row.findings[:_SHOWN_FINDINGS]],
        "not_recovered": [f"{row.kind}: {one.what}" for row in rows for one in row.unrecovered],
        "ended": [f"{row.kind}: {how}" for row in rows for how in row.ended],
        "episodes": [_rounded(asdict(one)) for row in rows for one in row.episodes],
    }


def _rounded(episode: dict[str, Any]) -> dict[str, Any]:
    return {name: round(one, 3) if isinstance(one, float) else one for name, one in episode.items()}


def is_harmless(rows: Iterable[Row]) -> bool:
    """Whether no promise was broken and every stage came back."""
    return not any(row.findings or row.unrecovered for row in rows)


def _figures(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    recoveries_s = [one for row in rows for one in row.recoveries_s]
    quantiles = np.percentile(recoveries_s, (50, 99)) if recoveries_s else ()
    known = ("lost", "doubled", "contradictory")
    return {
        "kind": name,
        "faults": sum(len(row.episodes) for row in rows),
        **{harm: sum(row.count(harm) for row in rows) for harm in known},
        "other": sum(len(row.findings) - row.count(*known) for row in rows),
        "not recovered": sum(len(row.unrecovered) for row in rows),
        "ended": sum(len(row.ended) for row in rows),
        "recovery_s": {name: round(float(one), 2) for name, one in zip(("p50", "p99"), quantiles, strict=False)},
        "queries": sum({id(row): row.queries for row in rows}.values()),
        "dead_letters": sum(row.dead_letters for row in rows),
        "figures": {name: count for row in rows for name, count in row.figures.items()},
    }


def _kills_by_step(rows: Iterable[Row]) -> dict[str, int]:
    """Return how often a process was killed at each step, those never reached included."""
    steps = Counter({point.name: 0 for point in FAULT_POINTS})
    for row in rows:
        struck = (one.what.partition(": ") for one in row.episodes)
        if row.kind == placement.KIND:
            steps.update(step for name, _, step in struck if name == "join")
        elif row.kind.startswith("kill "):
            steps.update(step for _, _, step in struck)
    return dict(steps)


def soak_document(found: Soak, command: str, seed: int, began_at: datetime) -> dict[str, Any]:
    memory = {name: slope._asdict() for name, slope in sorted(found.memory.items())}
    return document(found.rows, command, seed, began_at) | {"queries": found.queries, "memory": memory}


def commit() -> str:
    argv = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip() or "unknown"
