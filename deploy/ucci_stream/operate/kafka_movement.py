"""``ucci-stream what-moved``: samples results from before and after a time, and says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recalibrator.file_languages import language_identifier
from recalibrator.movement import NUMBERS, Sides
from schemas.settings import Settings
from schemas.topics import RESULTS
from ucci_stream.operate.kafka_scan import records_since
from ucci_stream.topics.admin import broker_failures


def what_moved(settings: Settings, workload: str, since: datetime, until: datetime, most: int) -> dict[str, Any]:
    """Return what differs between the results from a time on and those of as long a span before; blocks.

    The parameters are those of :class:`~recalibrator.movement.Sides`.

    Raises
    ------
    TooFewQueries, NotRead, BrokerUnreachable, AccessDenied
    """
    sides = Sides(workload, since, until, most)
    with broker_failures(settings):
        for record in records_since(settings, RESULTS.name(settings.topics.prefix), sides.start, "what-moved"):
            sides.offer(record)
    return sides.compared(sides.start, language_identifier())


def movement_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what moved for people."""
    before, after = found["before"], found["after"]
    head = (
        f"{found['workload']}: {before['results']} results from {before['since']}, {after['results']} from "
        f"{after['since']} to {found['until']}; {before['compared']} and {after['compared']} compared"
    )
    if not found["moved"]:
        return [head, "Nothing moved."]
    lines = [head]
    for one in found["moved"]:
        changes = ", ".join(
            f"{name} {_figure(former, name)} → {_figure(one['after'][name], name)}"
            for name, former in one["before"].items()
        )
        with_what = "" if one["follows"] is None else f" (with {one['follows']})"
        examples = f"; such as {', '.join(one['examples'])}" if one["examples"] else ""
        lines.append(f"{one['effect']:4.0%}  {one['what']}{with_what}: {changes}{examples}")
    return lines


def _figure(value: float, name: str) -> str:
    return f"{value:.3g}" if name in NUMBERS else f"{value:.0%}"
