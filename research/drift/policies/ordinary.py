"""The rivals of the ordinary suite: what knows no cold start, no names and no revisions, made to walk there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from research.drift.policies import OURS, POLICIES, takes_mess
from research.drift.policies.clairvoyant import Clairvoyant
from research.drift.policies.ours import Ours
from research.drift.policies.ucci_router import Static
from research.drift.policies.windowed import AdaptiveConformal, Scores, Windowed, scan
from research.drift.simulate import Alarm, Bools, Floats, Labels, Policy, TakesMess, Traffic
from research.drift.streams import Stream

STATIC, FIXED_RATE, ACI, FORESEEING = "static", "fixed-rate", "aci", "ours-foreseeing"
STATIC_MARGINS = (0.005, 0.01, 0.015, 0.02, 0.03, 0.04)
ACI_MARGIN, ACI_STEP = 0.005, 0.01
"""Of .0025, .005 and .01, and .002 to .02, what served seed 5 of four families best."""
_FIRST_LABELS = 250


class Rival(TakesMess):
    """A policy that takes each query's first label and, without a labelled set, starts on the first 250 labels.

    It explores nothing, since none of these looks at pairs of answers: what they need not, they do not pay.
    """

    def __init__(self, inner: Policy) -> None:
        super().__init__()
        self._inner = inner
        self._seen, self._started = 0, False
        self._before: list[Labels] = []
        self.exploration, self.audit = 0.0, 0.0

    @property
    def version(self) -> int:
        """The policy's own, 0 before it has started."""
        return self._inner.version if self._started else 0

    @property
    def alarms(self) -> list[Alarm]:
        """None: rivals raise no alarms."""
        return self._inner.alarms

    def start(self, labels: Labels) -> None:
        """Start the policy."""
        self._inner.start(labels)
        self._started = True
        self.journal.published.append((self._seen, 0.0))

    def escalates(self, u: Floats) -> Bools:
        """Escalate as the policy does, and all before it has started."""
        return self._inner.escalates(u) if self._started else np.ones(len(u), dtype=bool)

    def error_probability(self, u: Floats) -> Floats | None:
        """Return the policy's map."""
        return self._inner.error_probability(u) if self._started else None

    def on_traffic(self, traffic: Traffic) -> None:
        """Hand one chunk over."""
        self._seen += len(traffic.u)
        if self._started:
            self._inner.on_traffic(traffic)

    def on_labels(self, labels: Labels) -> None:
        """Hand over what is said of a query for the first time."""
        first = labels.revision == 1
        labels = Labels._make(column[first] for column in labels)
        if self._started:
            if len(labels.u):
                self._inner.on_labels(labels)
            return
        self._before.append(labels)
        if sum(len(one.u) for one in self._before) >= _FIRST_LABELS:
            self.start(Labels(*map(np.concatenate, zip(*self._before, strict=True))))


class FixedRate(Windowed):
    """Escalate for ever the share of traffic that the labelled set asked for, by the latest u alone."""

    def __init__(self, margin: float = 0.0) -> None:
        self._kept = 1.0
        super().__init__(margin)

    def _fit(self, labels: Labels) -> float:
        if self.version == 0:
            scores = Scores.of(labels, self._target)
            self._kept = float(np.mean(labels.u <= scan(labels.u, scores.small, scores.large)))
        return float(np.quantile(self._traffic.u, self._kept)) if self._kept > 0.0 else -1.0

    def on_labels(self, labels: Labels) -> None:
        """Ignore labels: the rate is fixed."""


class Foreseeing(Clairvoyant):
    """Ours, told when the world changes and, of each label, the truth."""

    def foresee(self, stream: Stream) -> None:
        """Learn of all changes of a stream."""
        super().foresee(stream)
        self._truth = stream.truth
        if stream.family.changes and stream.family.world(np.zeros(1)):
            self._changes = [round(change * len(stream)) for change in stream.family.changes]

    @property
    def exploration(self) -> float:
        """As after an alarm while few labels since the change are there, as far as settings allow."""
        return min(super().exploration, self._explored)

    def on_labels(self, labels: Labels) -> None:
        """Take labels in as they should have been."""
        told = (labels.number >= 0) & ~labels.retracted
        true = {
            name: np.where(told, getattr(self._truth, name)[labels.number], getattr(labels, name))
            for name in ("gold", "small", "large")
        }
        super().on_labels(labels._replace(**true))


JUDGED: dict[str, Callable[[], Policy]] = {
    OURS: lambda: Ours(watch=True),
    FORESEEING: Foreseeing,
    STATIC: lambda: Rival(Static()),
    **{f"{STATIC}+{margin:g}": lambda margin=margin: Rival(Static(margin)) for margin in STATIC_MARGINS},
    FIXED_RATE: lambda: Rival(FixedRate()),
    ACI: lambda: Rival(AdaptiveConformal(ACI_MARGIN, ACI_STEP)),
}
"""What the ordinary suite walks unless told otherwise."""
KNOWN = JUDGED | {name: made for name, made in POLICIES.items() if takes_mess(name) and name not in JUDGED}
