"""Whether a model server is failing now, as far as routed traffic shows it.

An outage belongs to the router: it says nothing of how well a model answers, and no threshold helps. The fit has to
know of one for three reasons only: it must not send a failing server more work, queries that a missing small model
could not score say nothing of the mix of queries, and the status must name the outage.
"""

from __future__ import annotations

from dataclasses import dataclass

OUTAGE_BEGINS, OUTAGE_ENDS = 0.1, 0.05
"""Shares of recent calls without a valid answer. A model that often fails to answer in form is not out: its usual share
is subtracted, see :class:`CallFailures`."""

_HALF_LIFE_CALLS = 100.0
_USUAL_HALF_LIFE_CALLS = 20_000.0


@dataclass(slots=True)
class CallFailures:
    """Failures of one model's calls: the recent share, and the usual one.

    Examples
    --------
    >>> failures = CallFailures()
    >>> seen = []
    >>> for failed in (0, 50, 0, 0, 0):
    ...     failures.add(100.0, failed)
    ...     seen.append(failures.is_out)
    >>> seen
    [False, True, True, True, False]
    """

    #: ``recent`` and ``usual``: decayed shares of calls without a valid answer, in [0, 1]; half-lives of 100 and of
    #: 20,000 calls.
    recent: float = 0.0
    usual: float = 0.0
    #: Whether recent failures exceed the usual ones by :data:`OUTAGE_BEGINS`, and since then by :data:`OUTAGE_ENDS`.
    is_out: bool = False

    def add(self, calls: float, failed: float) -> None:
        """Take the calls of one summary in."""
        if calls <= 0.0:
            return
        share = min(1.0, failed / calls)
        self.recent += (share - self.recent) * (1.0 - 0.5 ** (calls / _HALF_LIFE_CALLS))
        self.usual += (share - self.usual) * (1.0 - 0.5 ** (calls / _USUAL_HALF_LIFE_CALLS))
        excess = self.recent - self.usual
        self.is_out = excess >= (OUTAGE_ENDS if self.is_out else OUTAGE_BEGINS)
