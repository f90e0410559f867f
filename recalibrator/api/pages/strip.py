"""What answers the queries, as one line of chips in which what is amiss stands out; and how many queries come. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from statistics import mode
from typing import NamedTuple

from recalibrator.api.read_model.history import HistoryPoint, Served, last_growth
from recalibrator.headlines.facts import SILENT_AFTER
from schemas.status import ModelHealth, RecalibratorStatus, WorkloadRouter, WorkloadStatus, that_answer

#: More that are well are counted.
_MOST_ROUTERS = 3

_TONES = {"probing": "warn", "down": "bad"}


class Chip(NamedTuple):
    """A part of the service: its name, how it is in a few words, and a tone of the page."""

    name: str
    words: str
    tone: str


def deciding(status: WorkloadStatus) -> int | None:
    """Return the version by which most routers decide; the fit's newest where none reports."""
    found = [one.version for one in that_answer(status.routers) if not one.silent and one.version is not None]
    return mode(found) if found else status.calibration_version


def strip(status: WorkloadStatus, recalibrators: Sequence[RecalibratorStatus], now: datetime) -> Iterator[Chip]:
    """Yield the parts that serve a workload."""
    for role in ("small", "large"):
        seen = [one.models[role] for one in status.routers if not one.silent and role in one.models]
        if seen:
            yield _model(role, seen)
    usual = deciding(status)
    routers = [_router(one, usual) for one in status.routers]
    well = [one for one in routers if one.tone == "good"]
    yield from (one for one in routers if one.tone != "good")
    yield from well if len(well) <= _MOST_ROUTERS else [Chip(f"{len(well)} routers", "ready", "good")]
    for one in recalibrators:
        if now - one.updated_at > SILENT_AFTER:
            yield Chip(" + ".join(one.stages), f"silent since {one.updated_at:%H:%M:%S}", "bad")
            continue
        for name, stage in one.stages.items():
            tone = "bad" if not stage.ready else "warn" if stage.trouble else "good"
            yield Chip(name, stage.trouble or ("ready" if stage.ready else "not ready"), tone)


def _model(role: str, seen: Sequence[ModelHealth]) -> Chip:
    """Return a model as the router that sees it worst reports it."""
    states = {one.state for one in seen}
    state = next(one for one in (*reversed(_TONES), "up") if one in states)
    slowest = max((one.latency_s.get("p99", 0.0) for one in seen), default=0.0)
    usual = max((one.latency_s.get("p50", 0.0) for one in seen), default=0.0)
    speed = f", half within {usual:.2g} s, nearly all within {slowest:.2g} s" if slowest else ""
    if state == "up" and any(one.overloaded for one in seen):
        return Chip(f"{role} model", f"overloaded, {sum(one.queued for one in seen)} calls wait{speed}", "bad")
    return Chip(f"{role} model", f"up{speed}", "good") if state == "up" else Chip(f"{role} model", state, _TONES[state])


def _router(one: WorkloadRouter, usual: int | None) -> Chip:
    name = f"{one.instance_id}{' (gateway)' if one.serves == 'http' else ''}"
    if one.silent:
        return Chip(name, f"silent since {one.updated_at:%H:%M:%S}", "bad")
    elsewhere = "" if one.version == usual else f", by version {'none' if one.version is None else one.version}"
    return Chip(name, f"{'ready' if one.ready else 'not ready'}{elsewhere}", "good" if one.ready else "warn")


#: Over which the rate is taken.
SPAN = timedelta(minutes=5)

_HOUR = timedelta(hours=1)


class Traffic(NamedTuple):
    """Queries a second over :data:`SPAN`, None while unknown; when their count last grew; and answers of the last hour.

    ``degraded`` of ``answered`` were the small model's where the large one was to answer; None while unknown.
    """

    per_second: float | None
    last_at: datetime | None
    degraded: int | None = None
    answered: int | None = None


def traffic(points: Sequence[HistoryPoint], now: datetime) -> Traffic:
    """Return how busy a workload is, from the counts of its statuses."""
    known = [(point.at, point.served) for point in points if point.served is not None]
    if not known:
        return Traffic(None, None)
    since = now - SPAN
    start_at, start = _last_before(known, since)
    _, earlier = _last_before(known, now - _HOUR)
    # A status comes when something has changed: where the last one before is old, nothing came in until the span began.
    span_s = (now - max(start_at, since)).total_seconds()
    grown = known[-1][1].queries - start.queries
    rate = max(0, grown) / span_s if span_s > 0.0 else None
    lately = known[-1][1].degraded - earlier.degraded, known[-1][1].queries - earlier.queries
    return Traffic(rate if grown >= 0 else None, last_growth(points), *(lately if min(lately) >= 0 else (None, None)))


def _last_before(known: Sequence[tuple[datetime, Served]], moment: datetime) -> tuple[datetime, Served]:
    return next(((at, one) for at, one in reversed(known) if at <= moment), known[0])
