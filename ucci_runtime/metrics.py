"""What there is to know of a metric before it counts anything: the row of a service's table.

Names follow Prometheus' conventions: base units, ``_total`` on counters, no unit without a number behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric."""

    #: As scraped; or, where the service's table says so, without the prefix and the ``_total`` of counters.
    name: str
    #: ``counter``, ``gauge`` or ``histogram``.
    kind: Literal["counter", "gauge", "histogram"]
    #: What one is.
    unit: str
    #: What it counts, and what a rise means.
    help: str

    labels: tuple[str, ...] = ()
