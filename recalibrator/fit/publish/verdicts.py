"""What people say of served answers as a whole, beside what labels say: shown, and no part of any estimate.

Who judges an answer, and how honestly, nobody draws: verdicts are compared with the labels of the same queries, whose
requests are drawn whatever is said. Moving the estimate by verdicts, as far as labels bear them out, was measured to
gain nothing (docs/results/answers/verdicts.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_table import Change
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.publish.measured_quality import exact_share
from schemas.event import to_us
from schemas.labelled import LabelledExample
from schemas.status import VerdictStatus
from schemas.traffic import TrafficSummary

KEPT_VERDICTS = 1_000


class _Judged(NamedTuple):
    """One query's verdict: when the query was routed, whether it is "right", and what a requested label says of it."""

    routed_us: int
    right: bool
    exact: bool | None


class Verdicts(Part):
    """The latest verdicts of one workload, one a query."""

    _judged: Kept[dict[str, _Judged]]
    _given: Kept[int] = 0

    def __init__(self) -> None:
        self._judged = {}

    def take(self, event: LabelledExample | TrafficSummary, change: Change | None) -> None:  # noqa: ARG002
        """Keep what is said of a query now, and whether its label agrees; what was withdrawn goes."""
        if isinstance(event, TrafficSummary):
            return
        if event.verdict is None:
            self._judged.pop(event.query_id, None)
            return
        # Labels that people choose to give would not be a fair sample of what is judged.
        exact = event.served_exact if event.label_requested and not event.retracted else None
        self._given += event.query_id not in self._judged
        self._judged[event.query_id] = _Judged(to_us(event.routed_at), event.verdict == "right", exact)
        while len(self._judged) > KEPT_VERDICTS:
            del self._judged[next(iter(self._judged))]

    def status(self, view: View, policies: Policies | None) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the share that is "right", beside the share that labels find exact; None before any verdict."""
        judged = self._judged.values()
        if not judged:
            return None
        exact, wrong = ([one.right for one in judged if one.exact is is_exact] for is_exact in (True, False))
        found = VerdictStatus(
            given=self._given,
            right=_share([one.right for one in judged]),
            exact=exact_share(view.labels, min(one.routed_us for one in judged)),
            labelled=len(exact) + len(wrong),
            right_if_exact=_share(exact),
            right_if_wrong=_share(wrong),
        )
        return {"verdicts": found}


def _share(said: list[bool]) -> float | None:
    return float(np.mean(said)) if said else None
