"""The public front of the pure half: labelled examples, traffic summaries and commands in, calibration versions out.

No I/O, no clock, no chance: the same events give byte-identical versions.
"""

from recalibrator.fit.recalibrator import Recalibrator
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.settings import WorkloadSettings

__all__ = ["Recalibrator", "TrafficSummarizer", "WorkloadSettings"]
