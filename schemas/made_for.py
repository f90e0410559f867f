"""Whether a calibration version was made for what is configured: the one rule of routers, the fit and commands."""

from __future__ import annotations

from typing import Literal, NamedTuple

from schemas.basis import Basis, Handoff, handoff_name, is_decided_alike
from schemas.calibration import CalibrationVersion, LabelShares, Signal
from schemas.settings import WorkloadSettings

MisfitReason = Literal["foreign_signal", "foreign_basis", "foreign_handoff"]


class MadeFor(NamedTuple):
    """What a version must have been made for, to decide the queries of a workload."""

    #: What u is measured on.
    signal: Signal
    #: What is handed over; None: nothing.
    handoff: Handoff | None = None
    #: What answers rest on; None: not compared.
    basis: Basis | None = None


class Misfit(NamedTuple):
    """Why a version must not decide."""

    reason: MisfitReason
    #: What the version was made for, and what is configured.
    problem: str
    #: Names of what is not alike: of the settings, or of the parts of a signal.
    differing: tuple[str, ...]


def made_for(workload: WorkloadSettings) -> MadeFor:
    """Return what a version must have been made for, to decide under these settings."""
    return MadeFor(workload.signal, workload.offered_handoff, workload.basis)


def misfit(version: CalibrationVersion, wanted: MadeFor) -> Misfit | None:
    """Return why a version must not decide for a workload, or None where it may.

    Of one that does not say what its answers rest on, signal and handoff alone are compared.
    """
    if version.signal != wanted.signal:
        return _differing("foreign_signal", version.signal, wanted.signal)
    if version.basis is not None and wanted.basis is not None and version.basis != wanted.basis:
        return _differing("foreign_basis", version.basis, wanted.basis)
    if not is_decided_alike(version.handoff, wanted.handoff):
        found, here = (handoff_name(one) or "none" for one in (version.handoff, wanted.handoff))
        problem = f"made for the handoff {found}, configured is {here}"
        remedy = "give the fit and the routers the same handoff table"
        return Misfit("foreign_handoff", f"{problem}; {remedy}", ("handoff",))
    return None


def outdated(version: CalibrationVersion, workload: WorkloadSettings) -> tuple[str, ...]:
    """Return which settings a version that may decide carries with former values: what a refit puts right.

    Costs that are measured, or counted in tokens, follow the traffic and are not compared. Exploration is the fit's own
    choice, up to what is configured.
    """
    cost = workload.cost
    compared: dict[str, tuple[object, object]] = {
        "target": (version.target, workload.target),
        "cost": (version.costs, cost) if cost is not None and cost.unit == "call" else (None, None),
    }
    # A budget of labels is spent at shares of the fit's own choice, but none stay none.
    if workload.labels is None or not any(workload.label_shares):
        pairs = zip(LabelShares._fields, version.label_shares, workload.label_shares, strict=True)
        compared |= {f"sampling.label_probability_{name}": (carried, configured) for name, carried, configured in pairs}
    return tuple(name for name, (carried, configured) in compared.items() if carried != configured)


def _differing(reason: MisfitReason, made: Signal | Basis, configured: Signal | Basis) -> Misfit:
    before, after = made.model_dump(), configured.model_dump()
    differing = tuple(name for name in before if before[name] != after[name])
    named = "; ".join(f"{name} {_shown(before[name])}, not {_shown(after[name])}" for name in differing)
    return Misfit(reason, f"made with {named}", differing)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
