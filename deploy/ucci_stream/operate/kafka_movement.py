"""``ucci-stream what-moved``: samples results from before and after a time, and says what differs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from recalibrator.file_languages import language_identifier
from recalibrator.movement import Sides
from schemas.settings import Settings
from schemas.topics import RESULTS
from ucci_stream.operate.kafka_scan import records_since
from ucci_stream.topics.admin import broker_failures


def what_moved(settings: Settings, workload: str, since: datetime, until: datetime, most: int) -> dict[str, Any]:
    """Return what differs between the results from a time on and those of as long a span before; blocks.

    The parameters are those of :class:`~recalibrator.movement.Sides`. Raises TooFewQueries, NotRead, BrokerUnreachable
    or AccessDenied.
    """
    sides = Sides(workload, since, until, most)
    with broker_failures(settings):
        for record in records_since(settings, RESULTS.name(settings.topics.prefix), sides.start, "what-moved"):
            sides.offer(record)
    return sides.compared(sides.start, language_identifier())
