"""What a target may promise, and of which workload: the faults of a ``[workloads.NAME] target``, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.calibration import Target
from schemas.costs import ModelCosts


def contradictions(target: Target) -> Iterator[str]:
    """Yield what contradicts itself in a target.

    Examples
    --------
    >>> next(contradictions(Target()))
    'target promises nothing: give micro_f1, fields or cost'
    """
    if target.micro_f1 is None and target.cost is None and not target.fields:
        yield "target promises nothing: give micro_f1, fields or cost"
    quality = "micro_f1" if target.micro_f1 is not None else "fields" if target.fields else None
    if target.cost is not None and quality is not None:
        yield (
            f"target.cost and target.{quality} exclude each other: a budget buys the best micro-F1 that it can; leave "
            "one of them out (max_escalation limits the calls of the large model beside a quality)"
        )


def impossibilities(
    target: Target, fields: Sequence[str], cost: ModelCosts | None, exploration_probability: float
) -> Iterator[str]:
    """Yield what a workload cannot promise."""
    unknown = [name for name in target.fields if name not in fields]
    if unknown:
        yield f"target.fields: {', '.join(unknown)} is not a field of the workload; give one of {', '.join(fields)}"
    if target.max_escalation is not None and target.max_escalation <= exploration_probability:
        yield (
            f"target.max_escalation {target.max_escalation:g} does not exceed sampling.exploration_probability "
            f"{exploration_probability:g}, which escalates by itself: raise the one or lower the other"
        )
    if target.cost is None:
        return
    if cost is None:
        yield (
            "target.cost needs the workload's cost, as in cost = { small = 1.0, large = 3.0 }: measured from latency, "
            "the unit of the budget would change with the load"
        )
    elif cost.unit == "call":
        least = cost.small + exploration_probability * cost.large
        if target.cost <= least:
            yield (
                f"target.cost {target.cost:g} is spent before anything escalates: the small call of every query and "
                f"exploration cost {least:g}; raise it"
            )
