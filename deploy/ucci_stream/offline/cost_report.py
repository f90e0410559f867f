"""Says what :mod:`.cost_measurement` found: for people, for scripts, and as the line that ``ucci.toml`` takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from schemas.settings import TEXT_PLACEHOLDER, WorkloadSettings
from ucci_stream.offline.cost_estimate import ROLES, CostEstimate, Interval, ServerFigures
from ucci_stream.offline.cost_measurement import Measured
from ucci_stream.options import Outcome


def by_query(estimate: CostEstimate) -> str:
    """Return the line that prices calls.

    Examples
    --------
    >>> from ucci_stream.offline.cost_estimate import TokenPrices
    >>> tokens = TokenPrices(Interval(2.5, 2.4, 2.6), Interval(0.03, 0.02, 0.04), Interval(0.08, 0.07, 0.09))
    >>> by_query(CostEstimate({}, Interval(3.0, 2.9, 3.1), tokens))
    'cost = { small = 1.0, large = 3.0 }'
    """
    return f"cost = {{ small = 1.0, large = {_number(estimate.large)} }}"


def by_token(estimate: CostEstimate) -> str:
    """Return the line that prices tokens, those of prompts separately where that is known.

    Examples
    --------
    >>> from ucci_stream.offline.cost_estimate import TokenPrices
    >>> tokens = TokenPrices(Interval(2.5, 2.4, 2.6), Interval(0.03, 0.02, 0.04), Interval(0.0812, 0.07, 0.09))
    >>> by_token(CostEstimate({}, Interval(3.0, 2.9, 3.1), tokens))
    'cost = { unit = "token", small = 1.0, large = 2.5, prompt_small = 0.03, prompt_large = 0.0812 }'
    """
    tokens = estimate.tokens
    parts = ['unit = "token"', "small = 1.0", f"large = {_number(tokens.large)}"]
    for name, price in (("prompt_small", tokens.prompt_small), ("prompt_large", tokens.prompt_large)):
        if price is not None and price.estimate > 0.0:
            parts.append(f"{name} = {_number(price)}")
    return f"cost = {{ {', '.join(parts)} }}"


def remarks(workload: WorkloadSettings, measured: Measured) -> list[str]:
    """Return what must be known to use the figures, one line each."""
    found = []
    if measured.estimate.tokens.prompt_small is None:
        found.append("a server does not count the tokens of prompts: those generated bear the whole cost by token")
    if workload.offered_handoff is not None:
        found.append(
            "handoff is on, and large calls were measured alone: use the line by token, which also prices calls that "
            "go on from a small answer"
        )
    if not measured.plan.no_prefix_cache and not workload.prompt.startswith(TEXT_PLACEHOLDER):
        found.append(
            "what all prompts begin with is in the servers' prefix caches, as in production; --no-prefix-cache "
            "measures without them"
        )
    found += [f"{measured.failed[role]} calls of the {role} model failed and were left out" for role in measured.failed]
    return found


def report(workload: WorkloadSettings, measured: Measured) -> dict[str, Any]:
    """Return everything as JSON values."""
    estimate, plan = measured.estimate, measured.plan
    return {
        "workload": workload.name,
        "concurrency": plan.concurrency,
        "blocks": plan.blocks,
        "warm_up": plan.warm_up,
        "no_prefix_cache": plan.no_prefix_cache,
        "server_prices": dict(plan.server_prices),
        "servers": {
            role: {"model": getattr(workload, role).model, "failed": measured.failed[role], **asdict(figures)}
            for role, figures in estimate.servers.items()
        },
        "large": estimate.large._asdict(),
        "tokens": {
            name: None if price is None else price._asdict()
            for name in ("large", "prompt_small", "prompt_large")
            for price in [getattr(estimate.tokens, name)]
        },
        "settings": {"by_query": by_query(estimate), "by_token": by_token(estimate)},
        "remarks": remarks(workload, measured),
    }


def outcome(workload: WorkloadSettings, measured: Measured) -> Outcome:
    """Return all of it."""
    estimate, plan = measured.estimate, measured.plan
    small, large = (estimate.servers[role] for role in ROLES)
    table = Table("", *(f"{role}: {getattr(workload, role).model}" for role in ROLES))
    for name, left, right in zip(_ROWS, _row_cells(small), _row_cells(large), strict=True):
        table.add_row(name, left, right)
    ratios = Table("cost, small = 1", "estimate", "95 % interval")
    ratios.add_row("a large call", *_cells(estimate.large))
    ratios.add_row("a token that the large model generates", *_cells(estimate.tokens.large))
    for role in ROLES:
        price: Interval | None = getattr(estimate.tokens, f"prompt_{role}")
        if price is not None:
            ratios.add_row(f"a token that the {role} model reads", *_cells(price))
    lines: list[RenderableType] = [
        f"{small.calls} and {large.calls} answers in {plan.blocks} blocks, {plan.concurrency} calls in flight",
        table,
        ratios,
        *(f"note: {line}" for line in remarks(workload, measured)),
        f"\nfor [workloads.{workload.name}], by query or by token:",
        by_query(estimate),
        by_token(estimate),
    ]
    return Outcome(report(workload, measured), lines)


_ROWS = (
    "latency p50, p99",
    "calls a second",
    "tokens generated a second",
    "prompt tokens read a second",
    "tokens of a prompt, of an answer",
)


def _row_cells(figures: ServerFigures) -> tuple[str, ...]:
    return (
        f"{figures.p50_s * 1000:.0f} ms, {figures.p99_s * 1000:.0f} ms",
        f"{figures.calls_per_s:.1f}",
        f"{figures.generated_per_s:.0f}",
        "–" if figures.read_per_s is None else f"{figures.read_per_s:.0f}",
        f"{figures.prompt_tokens:.0f}, {figures.completion_tokens:.0f}",
    )


def _cells(price: Interval) -> tuple[str, str]:
    return f"{price.estimate:.3g}", f"{price.lower:.3g} to {price.upper:.3g}"


def _number(price: Interval) -> str:
    """Return three digits of a price as TOML's float."""
    return repr(float(f"{price.estimate:.3g}"))
