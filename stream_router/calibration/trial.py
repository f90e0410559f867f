"""Versions on trial: records of the trial topic flow in; what is tried beside the version in force flows out.

A trial never decides whether queries are answered: without one, or with one that does not fit, the version in force
decides alone, as it does in routers that do not know of trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemas.calibration import CalibrationVersion, Signal
from schemas.errors import DecodeError
from schemas.routed import Decision, TrialDecision
from schemas.trial import CalibrationTrial


class TrialChange(NamedTuple):
    """What a record changed.

    Parameters
    ----------
    workload : str
    trial : CalibrationTrial or None
        From now on.
    problem : str or None
        Why the record was not taken.
    """

    workload: str
    trial: CalibrationTrial | None
    problem: str | None = None


class Trials:
    """The trials under way, by workload.

    Parameters
    ----------
    signals : mapping of workload to Signal
        What u is measured on under this router's configuration.
    """

    def __init__(self, signals: Mapping[str, Signal]) -> None:
        self._signals = dict(signals)
        self._trials: dict[str, CalibrationTrial] = {}

    def of(self, workload: str) -> CalibrationTrial | None:
        """Return a workload's trial, or None."""
        return self._trials.get(workload)

    def offer(self, key: bytes | None, value: bytes | None) -> TrialChange | None:
        """Take a record; whatever it holds, it takes the place of the workload's trial before it.

        Returns
        -------
        TrialChange or None
            None when its key is of no workload configured here.
        """
        workload = (key or b"").decode("utf-8", "replace")
        signal = self._signals.get(workload)
        if signal is None:
            return None
        trial, problem = (None, None) if value is None else _read(workload, value, signal)
        if trial is None:
            self._trials.pop(workload, None)
        else:
            self._trials[workload] = trial
        return TrialChange(workload, trial, problem)


def _read(workload: str, value: bytes, signal: Signal) -> tuple[CalibrationTrial | None, str | None]:
    """Return the trial in a record, or what is wrong with it."""
    try:
        trial = CalibrationTrial.from_json(value)
    except DecodeError as error:
        return None, str(error)
    if trial.workload != workload:
        return None, f"the key is {workload!r}, the workload {trial.workload!r}"
    if trial.version.signal != signal:
        return None, f"made for {trial.version.signal}, configured is {signal}"
    return trial, None


def decide_beside(
    version: CalibrationVersion, trial: CalibrationTrial, uncertainty: float | None, query_id: str
) -> tuple[Decision, CalibrationVersion]:
    """Decide one query by the version in force and by the one on trial.

    Parameters
    ----------
    version : CalibrationVersion
        In force.
    trial : CalibrationTrial
    uncertainty : float or None
        None when the small model failed.
    query_id : str

    Returns
    -------
    Decision
        The one to act on, with its own propensities, and both told in its ``trial``.
    CalibrationVersion
        Whose it is.
    """
    base, tried = version.decide(uncertainty, query_id), trial.version.decide(uncertainty, query_id)
    acted = trial.acts_on(query_id)
    told = TrialDecision(
        version=trial.version.version,
        mode=trial.mode,
        escalated=tried.escalated,
        base_version=version.version,
        base_escalated=base.escalated,
        acted=acted,
    )
    decision, by = (tried, trial.version) if acted else (base, version)
    return decision.model_copy(update={"trial": told}), by


def labels(workload: str, told: TrialDecision | None) -> tuple[str, str, str, str] | None:
    """Return what a result is counted by: workload, mode, whose decision was acted on, and how both compare."""
    if told is None:
        return None
    compared = "same"
    if told.escalated != told.base_escalated:
        compared = "trial_escalates" if told.escalated else "base_escalates"
    return workload, told.mode, "trial" if told.acted else "base", compared
