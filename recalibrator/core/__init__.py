"""The pure core: labelled examples, traffic summaries and commands in, calibration versions out.

No I/O, no clock, no chance: the same events give byte-identical versions.
"""

from recalibrator.core.recalibrator import Recalibrator
from recalibrator.core.summarizer import TrafficSummarizer
from schemas.settings import WorkloadSettings

__all__ = ["Recalibrator", "TrafficSummarizer", "WorkloadSettings"]
