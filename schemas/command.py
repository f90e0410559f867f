"""Command: what a person or a tool asks of the fit; an event in the log of the labels, so that it can be replayed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.calibration import ESCALATE_ALL, ESCALATE_NONE, CalibrationMap
from schemas.event import MAX_NAME_CHARS, Count, Event, Ordinal, Probability, Real, Timestamp, WorkloadName

Action = Literal["bootstrap", "activate", "pin", "unpin", "pause", "resume", "refit"]


class Command(Event):
    """One administrative act.

    Parameters
    ----------
    action : str
        ``bootstrap`` publishes a first version: of ``map`` and ``uncertainty_threshold`` where they are given, else
        fitted on the labelled examples before it in the log. ``activate`` publishes version ``version`` anew under
        a new number. ``pin`` does so too and keeps it through refits until ``unpin``. ``pause`` stops publishing
        until ``resume``. ``refit`` fits and publishes at once.
    version : int, optional
        For ``activate`` and ``pin``; ``pin`` without one pins the version in force.
    map, uncertainty_threshold, error_probability_threshold : optional
        For ``bootstrap`` from a finished calibration; the threshold on u wins over the one on g. With ``activate`` and
        ``pin`` the content of ``version``, for when the fit keeps it no longer.
    issued_by, reason : str
        Who, and why.
    """

    kind: Literal["command"] = "command"
    workload: WorkloadName
    action: Action
    version: Ordinal | None = None
    map: CalibrationMap | None = None
    uncertainty_threshold: Annotated[Real, Field(ge=ESCALATE_ALL, le=ESCALATE_NONE)] | None = None
    error_probability_threshold: Probability | None = None
    examples: Count | None = None
    issued_by: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    issued_at: Timestamp
    reason: Annotated[str, Field(max_length=4_096)] = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.action == "activate" and self.version is None:
            raise ValueError("version: is required to activate")
        return self
