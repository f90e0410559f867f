"""What a target asks for and how it is met, as clauses of a sentence: for the status, the page and the commands."""

from __future__ import annotations

from schemas.calibration import FIELD_PREFIX, Interval, Target, TargetStanding

#: Of micro-F1; an estimate so little below the target still counts as holding it.
TOLERANCE = 0.005


def estimated(interval: Interval) -> str:
    """Return an estimate with its interval.

    Examples
    --------
    >>> estimated(Interval(estimate=0.9123, lower=0.905, upper=0.92))
    '0.912 (0.905 to 0.920)'
    """
    return f"{interval.estimate:.3f} ({interval.lower:.3f} to {interval.upper:.3f})"


def is_held(target: Target, quality: Interval | None, standing: TargetStanding | None) -> bool:
    """Return whether everything that is estimated lies at its target or above it; what is not known counts as held."""
    held = [] if quality is None or target.micro_f1 is None else [(quality, target.micro_f1)]
    fields = {} if standing is None else standing.fields
    held += [(fields[name], wanted) for name, wanted in target.fields.items() if name in fields]
    return all(interval.estimate >= wanted - TOLERANCE for interval, wanted in held)


def of_fields(target: Target, standing: TargetStanding | None) -> str:
    """Return what each field with a target of its own reaches, and which target binds; empty where none has one.

    Examples
    --------
    >>> camera = Interval(estimate=0.9, lower=0.89, upper=0.91)
    >>> standing = TargetStanding(binds="fields.camera", fields={"camera": camera})
    >>> of_fields(Target(micro_f1=0.8, fields={"camera": 0.9}), standing)
    'camera 0.900 (0.890 to 0.910) for 0.9; camera binds'
    """
    if standing is None or not target.fields:
        return ""
    known = {name: one for name, one in standing.fields.items() if name in target.fields}
    reached = [f"{name} {estimated(one)} for {target.fields[name]:g}" for name, one in known.items()]
    binds = standing.binds or ""
    scarce = binds.removeprefix(FIELD_PREFIX) if binds.startswith(FIELD_PREFIX) else "micro-F1" if binds else ""
    return ", ".join(reached) + (f"; {scarce} binds" if scarce and not standing.is_capped else "")


def of_cap(target: Target, quality: Interval | None, standing: TargetStanding | None) -> str:
    """Return what the cap on escalation costs in quality; empty where it does not bind.

    Examples
    --------
    >>> quality = Interval(estimate=0.893, lower=0.887, upper=0.899)
    >>> of_cap(
    ...     Target(micro_f1=0.91, max_escalation=0.4),
    ...     quality,
    ...     TargetStanding(binds="max_escalation", wanted_escalation=0.524),
    ... )
    'the cap of 40% escalated costs 0.017 of micro-F1 (0.011 to 0.023): the target would take 52%'
    """
    if standing is None or not standing.is_capped or target.max_escalation is None:
        return ""
    cap = f"the cap of {100.0 * target.max_escalation:g}% escalated"
    wanted = standing.wanted_escalation
    whose = "the budget" if target.cost is not None else "the target"
    takes = "" if wanted is None else f": {whose} would take {100.0 * wanted:.0f}%"
    if quality is None or target.micro_f1 is None or quality.estimate >= target.micro_f1:
        return f"{cap} binds{takes}"
    low, high = max(0.0, target.micro_f1 - quality.upper), target.micro_f1 - quality.lower
    return f"{cap} costs {target.micro_f1 - quality.estimate:.3f} of micro-F1 ({low:.3f} to {high:.3f}){takes}"


def of_budget(target: Target, standing: TargetStanding | None) -> str:
    """Return what queries have really cost against the budget; empty where there is none.

    Examples
    --------
    >>> from schemas.calibration import BudgetStanding
    >>> budget = BudgetStanding(allowed=1.71, realised=1.698, queries=10_000)
    >>> of_budget(Target(cost=1.7), TargetStanding(budget=budget))
    '1.698 a query over the last 10,000, for a budget of 1.7'
    """
    if target.cost is None or standing is None or standing.budget is None:
        return ""
    budget = standing.budget
    if budget.realised is None:
        return f"no query yet, for a budget of {target.cost:g}"
    return f"{budget.realised:.4g} a query over the last {budget.queries:,}, for a budget of {target.cost:g}"
