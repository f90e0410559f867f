"""Command: what a person or a tool asks of the fit; an event in the log of the labels, so that it can be replayed."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.basis import Basis
from schemas.calibration import ESCALATE_ALL, ESCALATE_NONE, CalibrationMap
from schemas.event import (
    DEFAULT_SIGNAL,
    MAX_NAME_CHARS,
    Count,
    Event,
    Flag,
    Ordinal,
    Probability,
    Real,
    SignalName,
    Timestamp,
    WorkloadName,
)
from schemas.feedback import LabelerName

Action = Literal[
    "bootstrap",
    "activate",
    "pin",
    "unpin",
    "pause",
    "resume",
    "refit",
    "shadow",
    "canary",
    "promote",
    "stop_trial",
    "large_only",
    "end_large_only",
    "believe",
    "compare_again",
]


class Command(Event):
    """One administrative act.

    Parameters
    ----------
    issued_by, reason : str
        Who, and why.
    """

    kind: Literal["command"] = "command"
    workload: WorkloadName
    #: ``bootstrap`` publishes a first version: of ``map`` and ``uncertainty_threshold`` where they are given, else
    #: fitted on the labelled examples before it in the log. ``activate`` publishes version ``version`` anew under a new
    #: number, with ``hold`` until ``unpin``, else until a refit replaces it. ``pin`` publishes a version anew and keeps
    #: it until ``unpin``. ``pause`` stops publishing fits until ``resume``. These publish the version in force anew,
    #: with what holds it now. ``refit`` fits and publishes at once. ``shadow`` and ``canary`` begin a trial of version
    #: ``version``: routers report what it would decide, or decide a ``share`` of queries by it. ``promote`` publishes
    #: the version on trial under a new number, ``stop_trial`` ends the trial. ``large_only`` has the large
    #: model answer alone until ``until``, or without it until labels show that the cascade costs less again;
    #: ``end_large_only``, ``bootstrap``, ``activate`` and ``promote`` end that at once.
    #: ``believe`` has the labels of ``labeler`` count, and never again be set aside for differing from other people's,
    #: until ``compare_again``.
    action: Action
    #: For ``activate``, ``pin``, ``shadow`` and ``canary``; ``pin`` without one pins the version in force.
    version: Ordinal | None = None
    #: For ``activate``: whether refits are held back until ``unpin``. The HTTP API holds unless asked not to; a command
    #: that does not say does not.
    hold: Flag | None = None
    #: For ``canary``: of queries, in (0, 1].
    share: Annotated[Real, Field(gt=0.0, le=1.0)] | None = None
    #: For ``large_only``.
    until: Timestamp | None = None
    #: For ``believe`` and ``compare_again``: as that person's feedback names them.
    labeler: LabelerName | None = None
    #: For ``bootstrap`` from a finished calibration; the threshold on u wins over the one on g. With ``activate``,
    #: ``pin``, ``shadow`` and ``canary`` the content of ``version``, for when the fit keeps it no longer.
    map: CalibrationMap | None = None
    uncertainty_threshold: Annotated[Real, Field(ge=ESCALATE_ALL, le=ESCALATE_NONE)] | None = None
    error_probability_threshold: Probability | None = None
    #: How u of ``map`` is measured; a map of another signal than the workload's is refused.
    signal: SignalName = DEFAULT_SIGNAL
    #: What the answers behind ``map`` rest on; a map of another basis than the workload's is refused.
    basis: Basis | None = None

    examples: Count | None = None
    issued_by: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    issued_at: Timestamp
    reason: Annotated[str, Field(max_length=4_096)] = ""
    #: By which the status names what became of the command.
    command_id: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.action in ("activate", "shadow", "canary") and self.version is None:
            raise ValueError(f"version: is required to {self.action}")
        if self.action == "canary" and self.share is None:
            raise ValueError("share: is required to canary; send the share of queries, above 0 and up to 1")
        if self.action in ("believe", "compare_again") and self.labeler is None:
            raise ValueError(f"labeler: is required to {self.action}; send the name as feedback gives it")
        return self
