"""Reads the events of the input topics; a :class:`~schemas.errors.DecodeError` says what is wrong with a record.

Whatever passes is of a configured workload; nothing that a producer sends raises anything else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field, TypeAdapter

from schemas.command import Command
from schemas.errors import DecodeError
from schemas.event import MAX_RECORD_BYTES, decoded, refuse_duplicate_keys
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from schemas.traffic import TrafficSummary

Observation = LabelledExample | TrafficSummary | Command

_OBSERVATION: TypeAdapter[Observation] = TypeAdapter(Annotated[Observation, Field(discriminator="kind")])


def decode_result(value: bytes | None, workloads: Collection[str]) -> RoutedEvent:
    """Return a record of the results. Raises DecodeError."""
    routed = RoutedEvent.from_record(_present(value))
    _check_workload(routed.workload, workloads)
    return routed


def decode_feedback(value: bytes | None) -> FeedbackEvent:
    """Return a record of the feedback; its workload is known by its result alone. Raises DecodeError."""
    return FeedbackEvent.from_record(_present(value))


def decode_observation(value: bytes | None, workloads: Collection[str]) -> Observation:
    """Return a record of the observations, of whichever kind. Raises DecodeError."""
    present = _present(value)
    if len(present) > MAX_RECORD_BYTES:
        raise DecodeError("too_large", f"record of {len(present)} bytes exceeds {MAX_RECORD_BYTES}: send less")
    event: Observation = decoded(_OBSERVATION.validator, present)
    if event.sent_by_others:
        refuse_duplicate_keys(present)
    _check_workload(event.workload, workloads)
    return event


def _present(value: bytes | None) -> bytes:
    if value is None:
        raise DecodeError("empty", "the record has no value")
    return value


def _check_workload(workload: str, workloads: Collection[str]) -> None:
    if workload not in workloads:
        known = ", ".join(sorted(workloads))
        message = f"workload: {workload!r} is not configured here (configured: {known})"
        raise DecodeError("unknown_workload", message, "workload")
