"""Both levers of the bill, handoff and early stop: chunks flow in, what their calls cost flows out.

Shares are those measured live on the demo's models. What a stopped call no longer tells is in ``ours-early-stop``, on
which ``ours-levers`` stands. Answers that go on from what was handed over are taken to be as good as others, as was
measured (micro-F1 of escalated queries -.0007 [-.0030, +.0014], ``docs/results/handoff``).
"""

from __future__ import annotations

import numpy as np

from benchmarks.drift.mess import LABELLED_ESCALATED
from benchmarks.drift.policies.early_stop import FULL_SHARE, SHORTEST, OursEarlyStop
from benchmarks.drift.policies.ucci_router import Static
from benchmarks.drift.simulate import CallShares, Floats, Labels, Traffic

LARGE_TOKENS_SAVED = 0.146
"""By ``token@0.9`` on texts with typos (``docs/results/handoff``); on clean ones .173, but streams are to drift."""
GUARD_SHARE = 0.01
"""Of the escalated queries the large model also answers alone, unserved: the default of the settings."""
OF_EVEN = 0.752
"""Generated of stopped answers, over what it would be if doubt came evenly over the tokens: it comes early
(``docs/results/early_stop``, "of evenly" at the .9 quantile of lengths)."""


def small_tokens_saved(u: Floats, threshold: float) -> Floats:
    """Return the expected share of a small answer that is not generated where nothing keeps its call in full.

    An answer with a share s of the longest one's tokens gives cause to stop where s·u exceeds the threshold t, and ends
    at ``OF_EVEN``·t/(s·u) of its own tokens. The mean is over s, uniform on [``SHORTEST``, 1], so that no draw adds
    noise.

    Examples
    --------
    >>> small_tokens_saved(np.array([0.02, 0.03, 0.06]), threshold=0.03).round(3).tolist()
    [0.0, 0.0, 0.52]
    """
    ratio = np.clip(threshold / u, 0.0, 1.0)
    shortest = np.maximum(SHORTEST, ratio)
    return np.asarray((1.0 - shortest + OF_EVEN * ratio * np.log(shortest)) / (1.0 - SHORTEST))


def call_shares(traffic: Traffic, threshold: float) -> CallShares:
    """Return what calls cost with ``token@0.9`` and early stop: labelled queries run in full, the guard calls twice.

    Parameters
    ----------
    traffic : Traffic
    threshold : float
        On u, in force.
    """
    # Labels are drawn inside the full share: the rest of it falls on the queries without one.
    stopped = np.where(traffic.label_requested, 0.0, (1.0 - FULL_SHARE) / (1.0 - LABELLED_ESCALATED))
    saved = np.where(traffic.escalated & ~np.isnan(traffic.u), stopped * small_tokens_saved(traffic.u, threshold), 0.0)
    return CallShares(1.0 - saved, 1.0 - LARGE_TOKENS_SAVED + GUARD_SHARE * traffic.escalated)


class OursLevers(OursEarlyStop):
    """Ours with both levers."""

    def call_shares(self, traffic: Traffic) -> CallShares:
        """Return what one chunk's calls cost."""
        return call_shares(traffic, self._current().uncertainty_threshold)


class StaticLevers(Static):
    """The paper's static calibration with both levers: it learns nothing, so that they change nothing but its cost."""

    def start(self, labels: Labels) -> None:
        """Calibrate, and find the u above which queries escalate: the map is monotone."""
        super().start(labels)
        self.threshold = float(labels.u[~self.escalates(labels.u)].max(initial=0.0))

    def call_shares(self, traffic: Traffic) -> CallShares:
        """Return what one chunk's calls cost."""
        return call_shares(traffic, self.threshold)
