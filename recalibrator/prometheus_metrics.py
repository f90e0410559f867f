"""The object that the parts of the recalibrator count on."""

from __future__ import annotations

from math import nan

from recalibrator.metrics import LATENCY_BUCKETS_S, SPECS
from ucci_runtime.prometheus_registry import MetricRegistry


class Metrics(MetricRegistry):
    """The recalibrator's metrics."""

    def __init__(self) -> None:
        super().__init__(SPECS, LATENCY_BUCKETS_S)
        # Not 0, which is a full disk: a process without a join has none.
        self.gauge("disk_free_bytes", nan)
