"""HappeningEvent: what changed for a workload at one moment, as an operator wants to read it the morning after."""

from __future__ import annotations

from typing import ClassVar

from schemas.event import Event, Flag, Timestamp, WorkloadName


class HappeningEvent(Event):
    """Something that began, ended or was done; written by the fit with the status that shows it first."""

    sent_by_others: ClassVar[bool] = False

    workload: WorkloadName
    at: Timestamp
    #: ``outage``, ``alarm``, ``audit`` and ``set_aside``; the same with ``_over`` for their ends; ``act``. Later
    #: releases may write others.
    kind: str
    #: In plain words.
    sentence: str
    #: Whether somebody should look at it.
    is_bad: Flag = False
    #: Whose labels are set aside, or count again.
    labeler: str | None = None
