"""How a workload stands, at a terminal: the headline, its act and five numbers; the exit code says how grave it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from ucci_stream.options import Outcome

#: Exit codes by severity; 1 and 2 stay with what could not be asked.
CODES = {"good": 0, "calm": 0, "warn": 3, "bad": 4}


def stands(status: Mapping[str, Any], url: str) -> Outcome:
    """Return what an API says of a workload, with the address of the act."""
    one = status["headline"]
    act = " ".join(part for part in (one["act"], f"{url}{one['link']['href']}" if one["link"] else "") if part)
    numbers = _numbers(status)
    table = Table(*numbers, box=None, pad_edge=False)
    table.add_row(*numbers.values())
    lines: list[RenderableType] = [f"{status['workload']}: {one['sentence']}", *([act] if act else []), table]
    return Outcome({"workload": status["workload"], "headline": one, "numbers": numbers}, lines, CODES[one["severity"]])


def _numbers(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the five numbers that people ask for; a dash where nobody knows."""
    quality, cost, target = status["micro_f1"], status["cost"], status["target"]
    served = status["details"].get("served") or {}
    queries = sum(served.get(name, 0) for name in ("small", "large", "degraded"))
    goal = "" if target.get("micro_f1") is None else f" for {target['micro_f1']:g}"
    rate, saved = status["escalation_rate"], status["saving"]
    waiting = ((status["lag"] or {}).get("records") or {}).get("queries")
    return {
        "micro-F1": "–" if quality is None else f"{quality['estimate']:.3f}{goal}",
        "escalated": "–" if rate is None else f"{rate:.1%}",
        "cost": "–"
        if cost is None
        else f"{cost['sequential']:.2f}{'' if saved is None else _saved(saved['sequential'])}",
        "degraded": f"{served.get('degraded', 0)} of {queries}" if queries else "–",
        "waiting": "–" if waiting is None else str(waiting),
    }


def _saved(share: float) -> str:
    return f", {share:.0%} saved" if share >= 0.0 else f", {-share:.0%} more than the large model alone"
