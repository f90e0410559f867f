"""The drift detectors that a workload's settings can name: ours, and river's with their arguments.

``river:ADWIN(delta=0.002)`` reads like a call and is none: the class must be on the list below, and each argument must
be a plain value within its bounds.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

DEFAULT_DETECTORS = (
    "agreement",
    "uncertainty_median",
    "uncertainty_tail",
    "label_residual",
    "error_given_agreement",
    "right_given_disagreement",
)
"""Those in use where a workload names none; those without labels first."""

BUILT_IN = DEFAULT_DETECTORS
"""All of ours. A new one is added here, and watches the workloads that name it."""

_RIVER = "river:"
_CHARS_MOST = 200


class _Bounds(NamedTuple):
    """What an argument may be: a number between two others, whole or not."""

    low: float
    high: float
    whole: bool = False

    def fault(self, value: object) -> str | None:
        kind = "a whole number" if self.whole else "a number"
        fits = isinstance(value, int if self.whole else (int, float)) and not isinstance(value, bool)
        if fits and self.low <= value <= self.high:  # type: ignore[operator]
            return None
        return f"must be {kind} from {self.low:g} to {self.high:g}"


class _OneOf(NamedTuple):
    """What an argument may be: one of a few words."""

    words: tuple[str, ...]

    def fault(self, value: object) -> str | None:
        return None if value in self.words else f"must be one of {', '.join(map(repr, self.words))}"


_COUNT = _Bounds(1, 100_000, whole=True)
_SMALL = _Bounds(1e-9, 0.5)

RIVER: Mapping[str, Mapping[str, _Bounds | _OneOf]] = {
    "ADWIN": {
        "delta": _SMALL,
        "clock": _COUNT,
        "max_buckets": _Bounds(2, 1_000, whole=True),
        "min_window_length": _COUNT,
        "grace_period": _COUNT,
    },
    "PageHinkley": {
        "min_instances": _COUNT,
        "delta": _Bounds(0.0, 1.0),
        "threshold": _Bounds(1e-6, 1e6),
        "alpha": _Bounds(0.5, 1.0),
        "mode": _OneOf(("up", "down", "both")),
    },
    "KSWIN": {
        "alpha": _SMALL,
        "window_size": _Bounds(20, 10_000, whole=True),
        "stat_size": _Bounds(5, 5_000, whole=True),
        "seed": _Bounds(0, 2**31 - 1, whole=True),
    },
}
"""River's detectors of a mean or a distribution that are deterministic, KSWIN by its seed, and their arguments."""

_KSWIN_DEFAULTS = {"window_size": 100, "stat_size": 30}


class RiverSpec(NamedTuple):
    """A detector of ``river.drift``: its class, and the arguments that are given."""

    kind: str
    arguments: dict[str, int | float | str]


def check_detector(name: str) -> str:
    """Return the name of a detector that there is.

    Raises
    ------
    ValueError
        If there is none of this name, or its arguments are wrong; the message says what is possible.

    Examples
    --------
    >>> check_detector("agreement"), check_detector("river:ADWIN(delta=0.002)")
    ('agreement', 'river:ADWIN(delta=0.002)')
    """
    if name.startswith(_RIVER):
        river_spec(name)
    elif name not in BUILT_IN:
        raise ValueError(f"{name!r} is no detector: use {', '.join(BUILT_IN)} or river:{' or river:'.join(RIVER)}")
    return name


def river_spec(name: str) -> RiverSpec:
    """Return class and arguments of a detector of river's.

    Parameters
    ----------
    name : str
        Such as ``river:ADWIN`` or ``river:PageHinkley(threshold=20.0, mode="up")``.

    Raises
    ------
    ValueError
        If the class is not on the list, or an argument is unknown, out of bounds or no plain value.

    Examples
    --------
    >>> river_spec("river:ADWIN(delta=0.002)")
    RiverSpec(kind='ADWIN', arguments={'delta': 0.002})
    """
    kind, arguments = _parsed(name)
    known = RIVER.get(kind)
    if known is None:
        raise ValueError(f"{name!r}: river has no such detector here; use one of {', '.join(RIVER)}")
    for key, value in arguments.items():
        if key not in known:
            raise ValueError(f"{name!r}: {kind} has no argument {key}; it takes {', '.join(known)}")
        fault = known[key].fault(value)
        if fault is not None:
            raise ValueError(f"{name!r}: {key} {fault}")
    if kind == "KSWIN":
        _check_kswin(name, arguments)
    return RiverSpec(kind, arguments)


def _check_kswin(name: str, arguments: Mapping[str, int | float | str]) -> None:
    if "seed" not in arguments:
        raise ValueError(f"{name!r}: KSWIN draws at random; give it a seed, such as seed=1")
    sizes = {**_KSWIN_DEFAULTS, **arguments}
    if int(sizes["window_size"]) < 2 * int(sizes["stat_size"]):
        raise ValueError(f"{name!r}: window_size must be at least twice stat_size ({sizes['stat_size']})")


def _parsed(name: str) -> tuple[str, dict[str, int | float | str]]:
    text = name.removeprefix(_RIVER)
    wrong = ValueError(f"{name[:_CHARS_MOST]!r}: write it as river:ADWIN(delta=0.002), with plain values by name")
    if len(text) > _CHARS_MOST:
        raise wrong
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        raise wrong from None
    if isinstance(call, ast.Name):
        return call.id, {}
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise wrong
    arguments: dict[str, int | float | str] = {}
    for keyword in call.keywords:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg is None or not isinstance(value, int | float | str):
            raise wrong
        arguments[keyword.arg] = value
    return call.func.id, arguments
