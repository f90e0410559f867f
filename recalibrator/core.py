"""The public front of the pure half, which folds labelled examples, traffic summaries and commands into versions.

No I/O, no clock, no chance: the same events give byte-identical versions.
"""

from recalibrator.fit.recalibrator import Recalibrator
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.settings import WorkloadSettings

__all__ = ["Recalibrator", "TrafficSummarizer", "WorkloadSettings"]
