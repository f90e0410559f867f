"""The contract as code: whatever crosses a topic, a file or an HTTP body. No I/O, no clock, no chance.

Queries are answered by a small and, where its uncertainty calls for it, a large model
(:class:`QueryEvent` → :class:`RoutedEvent`); people are asked (:class:`LabelRequested`) and say what was right
(:class:`FeedbackEvent`); both are joined to :class:`LabelledExample`, and with :class:`TrafficSummary` and
:class:`Command` folded into :class:`CalibrationVersion`, by which the routers decide.
"""

from importlib.metadata import version

from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence, Interval, Signal, Target
from schemas.command import Command
from schemas.costs import CostRate, ModelCosts, QueryCost
from schemas.entities import PairCounts, count_pairs, equal, normalise
from schemas.errors import ConfigError, DecodeError, UcciError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.labelled import FieldCounts, LabelledExample, OutcomeCounts
from schemas.routed import Decision, Decisions, LabelRequest, ModelRun, QueryEvent, RoutedEvent, TrialDecision
from schemas.settings import Settings, WorkloadSettings
from schemas.status import DetectorStatus, DriftStatus, HappeningEvent, RecalibratorStatus, RouterStatus, WorkloadStatus
from schemas.traffic import GridSpec, TrafficSummary, TrialTraffic, VersionTraffic
from schemas.trial import CalibrationTrial, TrialArm, TrialStatus

__version__ = version("ucci-stream")

__all__ = [
    "CalibrationMap",
    "CalibrationTrial",
    "CalibrationVersion",
    "Command",
    "ConfigError",
    "CostRate",
    "Decision",
    "Decisions",
    "DecodeError",
    "DetectorStatus",
    "DriftStatus",
    "Evidence",
    "FeedbackEvent",
    "FieldCounts",
    "GridSpec",
    "HappeningEvent",
    "Interval",
    "LabelRequest",
    "LabelRequested",
    "LabelledExample",
    "ModelCosts",
    "ModelRun",
    "OutcomeCounts",
    "PairCounts",
    "QueryCost",
    "QueryEvent",
    "RecalibratorStatus",
    "RoutedEvent",
    "RouterStatus",
    "Settings",
    "Signal",
    "Target",
    "TrafficSummary",
    "TrialArm",
    "TrialDecision",
    "TrialStatus",
    "TrialTraffic",
    "UcciError",
    "VersionTraffic",
    "WorkloadSettings",
    "WorkloadStatus",
    "count_pairs",
    "equal",
    "normalise",
]
