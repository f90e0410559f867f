"""Which labelers are set aside: compared with each other every so many labels, on the labels that the table holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.arrays import Floats
from recalibrator.fit.data.label_columns import (
    GROUP,
    HITS_LARGE,
    HITS_SMALL,
    LABELER,
    NOBODY,
    PAIR,
    ROUTED_US,
    SIZE_LARGE,
    SIZE_SMALL,
    STANDING,
    Standing,
)
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.label_quality.labeler_effects import (
    LEAST_LABELS,
    ByLabeler,
    Deviation,
    Ints,
    deviations,
    labeler_effects,
    set_aside,
)

_LABELS_BETWEEN = 100
"""Labels, first ones and corrections, between two looks: that many get in before a stranger is noticed."""

_LABELS_MOST = 12_288
"""The latest by routing time that are looked at."""

_LABELS_A_TIME = 1_024
_PLACES = 6
"""Strata: so many labels of about the same time, a sixth of the range of u, and the relation of both answers."""


class LabelerWatch:
    """Compares the labelers of one workload with each other.

    Parameters
    ----------
    trusted : tuple of str
        Labelers who are right by definition.
    """

    def __init__(self, trusted: tuple[str, ...]) -> None:
        self._trusted = frozenset(trusted)
        self._since_look = 0
        self._distances: dict[str, tuple[float, float]] = {}

    def on_label(self, labels: LabelTable) -> frozenset[int] | None:
        """Count a label; return the numbers of the labelers to set aside from now on, or None for no change."""
        self._since_look += 1
        if self._since_look < _LABELS_BETWEEN or len(labels.labelers) < (1 if self._trusted else 2):
            return None
        self._since_look = 0
        found = self._judge(labels)
        former = {number + 1 for number, name in enumerate(labels.labelers) if name in labels.distrusted}
        return None if found == former else frozenset(found)

    def _judge(self, labels: LabelTable) -> set[int]:
        """Return the numbers of the labelers to be set aside."""
        rows = _rows(labels)
        names = labels.labelers
        former = [number for number, name in enumerate(names) if name in labels.distrusted]
        trusted = [number for number, name in enumerate(names) if name in self._trusted]
        found: set[int] = set()
        self._distances = {}
        pairs = rows[rows[:, PAIR] > 0.0]
        for part, hits, sizes in ((rows, HITS_SMALL, SIZE_SMALL), (pairs, HITS_LARGE, SIZE_LARGE)):
            if len(part) < LEAST_LABELS:
                continue
            score, size = part[:, hits] - labels.target * part[:, sizes], float(part[:, sizes].mean())
            scores = ByLabeler(part[:, LABELER].astype(np.intp) - 1, *_strata(part, labels.grid.cells), score)
            deviation = deviations(labeler_effects(scores, len(names)), trusted)
            if deviation is not None:
                found.update(number + 1 for number in set_aside(deviation, size, former))
                self._remember(names, deviation, size)
        return found

    def _remember(self, names: tuple[str, ...], deviation: Deviation, size: float) -> None:
        for name, distance, errors in zip(names, deviation.distance, deviation.in_errors, strict=True):
            if errors > self._distances.get(name, (0.0, 0.0))[1]:
                self._distances[name] = (float(distance) / max(size, 1e-12), float(errors))

    def details(self, labels: LabelTable) -> dict[str, JsonValue]:
        """Return who is set aside: how many labels, how far they move micro-F1, and that in standard errors."""
        found: dict[str, JsonValue] = {}
        for name, count in labels.distrusted_labels().items():
            distance, errors = self._distances.get(name, (0.0, 0.0))
            found[name] = {"labels": count, "micro_f1": distance, "errors": errors}
        return found

    def sentence(self, labels: LabelTable) -> str:
        """Say in one sentence who is set aside, or nothing."""
        counts = labels.distrusted_labels()
        names = list(counts)
        if not names:
            return ""
        who = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004
        return (
            f" Labels of {who} differ from everybody else's: {sum(counts.values())} are set aside until they no "
            "longer do, or trusted_labelers names their labeler."
        )

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        return {"since_look": self._since_look, "distances": {k: list(v) for k, v in self._distances.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        self._since_look = state["since_look"]
        self._distances = {name: (distance, errors) for name, (distance, errors) in state["distances"].items()}


def _rows(labels: LabelTable) -> Floats:
    """Return the latest labels of named labelers, those set aside or overruled included, by routing time."""
    table = np.concatenate((labels.table, labels.overruled.rows()))
    counts = table[:, STANDING]
    known = (
        (counts != Standing.WITHDRAWN)
        & (counts != Standing.UNREQUESTED)
        & (table[:, LABELER] != NOBODY)
        & (table[:, LABELER] > 0.0)
    )
    rows = table[known]
    latest: Floats = rows[np.argsort(rows[:, ROUTED_US], kind="stable")[-_LABELS_MOST:]]
    return latest


def _strata(rows: Floats, cells: int) -> tuple[Ints, Ints]:
    """Return the stratum of each label, and its kind: the relation of both answers."""
    group = rows[:, GROUP].astype(np.intp)
    kind, cell = np.divmod(group, cells)
    ranks = np.empty(len(rows), dtype=np.intp)
    ranks[np.argsort(cell, kind="stable")] = np.arange(len(rows))
    times = np.arange(len(rows)) // _LABELS_A_TIME
    places = ranks * _PLACES // max(len(rows), 1)
    _, stratum = np.unique((times * _PLACES + places) * 4 + kind, return_inverse=True)
    return stratum.astype(np.intp), kind
