"""What ``ucci-stream ask`` shows: the decision, and both models' answers side by side."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from schemas.entities import EntityMapping, normalise
from schemas.routed import ModelRun, RoutedEvent
from schemas.settings import Settings
from ucci_stream.topics.ask import Asked
from ucci_stream.topics.comparison import ask_large_directly

_REASONS = {
    "threshold": "u lies above the threshold, so the large model was asked",
    "exploration": "u lies below the threshold; the large model was asked to keep learning from both",
    "cold_start": "no calibration yet, so both models are asked",
    "infeasible": "no threshold meets the target; escalated because a gain is expected",
    "small_failed": "the small model gave no usable answer",
    "kept": "u lies below the threshold, so the small answer is served",
    "degraded": "the large model failed, so the small answer is served",
}


def show_answer(settings: Settings, asked: Asked, out: Console, *, as_json: bool) -> None:
    """Print a result for people, or as JSON for scripts.

    Where the large model did not run it is asked directly, for comparison; in JSON under ``comparison``.
    """
    routed = asked.routed
    comparison = None
    if routed.large is None:
        comparison = asyncio.run(ask_large_directly(settings.workloads[routed.workload], routed.text))
    if as_json:
        document: dict[str, Any] = {
            **json.loads(routed.to_json()),
            "seconds": round(asked.seconds, 4),
            "comparison": None if comparison is None else {"large": json.loads(comparison.model_dump_json())},
        }
        out.print_json(data=document)
        return
    _print_decision(asked, out)
    out.print(_answers(routed, comparison))
    if comparison is not None:
        out.print("large: asked directly for comparison, no part of the result", style="dim")


def _print_decision(asked: Asked, out: Console) -> None:
    routed, decision = asked.routed, asked.routed.decision
    facts = [
        ("decision", f"{'escalated' if decision.escalated else 'kept'}: {_REASONS[decision.reason]}"),
        ("answered by", f"{routed.answered_by}, {asked.seconds * 1000:.0f} ms from query to committed result"),
        ("u", "none" if decision.uncertainty is None else f"{decision.uncertainty:.5f}"),
    ]
    if decision.error_probability is not None:
        facts.append(("error probability", f"{decision.error_probability:.1%}"))
    if decision.threshold is not None:
        facts.append(("theta", f"{decision.threshold:.1%}, of calibration version {decision.calibration_version}"))
    facts.append(("cost", f"{routed.cost.sequential:g} sequential, {routed.cost.paper:g} paper (small call = 1)"))
    facts.append(("label", f"requested ({routed.label.reason})" if routed.label.requested else "not requested"))
    for name, value in facts:
        out.print(f"[bold]{name:>18}[/]  {value}", highlight=False)


def _answers(routed: RoutedEvent, comparison: ModelRun | None) -> Table:
    """Lay both answers out by field, the served one marked, differences in colour."""
    small, large = routed.small, routed.large or comparison
    table = Table("field", "small", "large", title=None)
    for field in routed.entities:
        left, right = _cell(small, field), _cell(large, field)
        style = None if normalise(left) == normalise(right) else "yellow"
        table.add_row(field, left, right, style=style)
    table.add_section()
    table.add_row("latency", _latency(small), _latency(large))
    return table


def _cell(run: ModelRun | None, field: str) -> str:
    if run is None:
        return "not asked"
    if not run.valid:
        return f"failed: {run.error}"
    entities: EntityMapping = run.entities or {}
    value = entities.get(field)
    if value is None:
        return "–"
    return value if isinstance(value, str) else ", ".join(value)


def _latency(run: ModelRun | None) -> str:
    return "–" if run is None else f"{run.latency_s * 1000:.0f} ms"
