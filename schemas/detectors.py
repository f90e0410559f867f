"""The drift detectors that a workload's settings can name: ours, and river's."""

from __future__ import annotations

from typing import Literal, get_args

DetectorName = Literal[
    "agreement",
    "uncertainty_median",
    "uncertainty_tail",
    "label_residual",
    "error_given_agreement",
    "right_given_disagreement",
]
#: Those in use where a workload names none; those without labels first.
DEFAULT_DETECTORS: tuple[DetectorName, ...] = get_args(DetectorName)

#: River's detectors of a mean or a distribution that are deterministic, KSWIN by its seed.
RiverName = Literal["ADWIN", "PageHinkley", "KSWIN"]

RiverArguments = dict[str, int | float | str]
