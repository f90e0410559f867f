"""The policies by name; a further one needs a line here and what :class:`~research.drift.simulate.Policy` asks."""

from __future__ import annotations

from collections.abc import Callable

from research.candidate.on_drift import OnDrift
from research.drift.policies.clairvoyant import Clairvoyant
from research.drift.policies.ours import WITHOUT, Ours
from research.drift.policies.ucci_router import AsReleased, Reselected, Static
from research.drift.policies.windowed import AdaptiveConformal, InversePropensity, Naive, PostStratified
from research.drift.simulate import Policy

OURS, CLAIRVOYANT = "ours", "ours-clairvoyant"
ALONE = {f"ours-only-{detector}": detector for detector in ("label_residual", "river:ADWIN", "river:PageHinkley")}
"""Ours with a single detector of the label residual, by policy: another detector that fires first has the map fitted
anew, and then there is no residual left for the slower one to find."""

RIVALS: dict[str, Callable[[float], Policy]] = {
    "static": Static,
    "naive": Naive,
    "inverse-propensity": InversePropensity,
    "post-stratified": PostStratified,
    "forgetting": lambda margin: PostStratified(margin, half_life=1_000.0),
    "adaptive-conformal": AdaptiveConformal,
    "ucci-router": AsReleased,
    "ucci-router-reselected": Reselected,
}
"""From a margin on the target to a policy."""

PLAIN: dict[str, Callable[[], Policy]] = {
    **{name: lambda make=make: make(0.0) for name, make in RIVALS.items()},
    OURS: lambda: Ours(watch=True),
    CLAIRVOYANT: Clairvoyant,
}
"""Every policy as it comes; the last one knows when the world changes."""

WATCHED: dict[str, Callable[[], Policy]] = {
    "ours-only-label_residual": lambda: Ours(watch=True, detectors=("label_residual",)),
    "ours-only-river:ADWIN": lambda: Ours(watch=True, detectors=(), river={"ADWIN": {"delta": 0.002}}),
    "ours-only-river:PageHinkley": lambda: Ours(watch=True, detectors=(), river={"PageHinkley": {"threshold": 10.0}}),
}

CANDIDATE: dict[str, Callable[[], Policy]] = {"candidate": OnDrift, "candidate@1": lambda: OnDrift(safety=1.0)}
"""A smaller method that may take the core's place, with its usual margin and with that of one standard deviation."""

POLICIES: dict[str, Callable[[], Policy]] = {
    **PLAIN,
    **WITHOUT,
    **WATCHED,
    **CANDIDATE,
}

EXERCISED_BY: dict[str, tuple[str, ...]] = {
    "ours-no-mix detectors": ("new_model", "prior"),
    "ours-no-recent labels by mix": ("new_model", "prior"),
    "ours-no-what labels do not tell": ("new_model", "prior"),
    "ours-no-tilt": ("new_model", "recurring", "label_drought"),
    "ours-no-least move": ("stationary",),
    "ours-no-rectifier": ("recurring", "slow_trend", "signal_lost"),
    "ours-no-discount": ("recurring", "both_abrupt", "signal_lost"),
    "ours-no-smoothing": ("recurring", "stationary"),
    "ours-no-forgetting": ("slow_trend",),
    "ours-no-exploration": ("both_abrupt", "new_model"),
    "ours-no-exploration at rest": ("stationary",),
    "ours-no-least gain": ("infeasible",),
    "ours-no-missing labels": ("label_drought",),
    "ours-no-fading prior": ("recurring",),
    CLAIRVOYANT: ("recurring",),
}
"""By policy: the families that put the missing part to work; a part is measured there, since elsewhere it rests."""


def exercised(family: str) -> tuple[str, ...]:
    """Return ours, and the policies that a family puts to the test."""
    return (OURS, *(policy for policy, families in EXERCISED_BY.items() if family in families))


def takes_mess(name: str) -> bool:
    """Whether a policy walks messy streams: ours does; the clairvoyant knows of clean ones alone."""
    return name.startswith(OURS) and name != CLAIRVOYANT


__all__ = [
    "ALONE",
    "CLAIRVOYANT",
    "EXERCISED_BY",
    "OURS",
    "PLAIN",
    "POLICIES",
    "WITHOUT",
    "exercised",
    "takes_mess",
]
