"""An interval that holds at all times together: an asymptotic confidence sequence.

Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024, theorem 2.2: with a chance of 95 % it holds the mean whenever one
looks, and looking after every label costs nothing.
"""

from __future__ import annotations

import math

_ALPHA = 0.05
_SPREAD = -2.0 * math.log(_ALPHA) + math.log(1.0 - 2.0 * math.log(_ALPHA))


def standard_errors(labels: int, tightest_at: float) -> float:
    """Return how many standard errors of a mean over some labels its bounds lie from it.

    Parameters
    ----------
    labels : int
        At least 1.
    tightest_at : float
        Labels at which the sequence is to be tightest, there at 3.04.

    Examples
    --------
    >>> round(standard_errors(500, 500.0), 2), round(standard_errors(2_000, 500.0), 2)
    (3.04, 3.13)
    """
    spread = labels * _SPREAD / tightest_at
    return math.sqrt(2.0 * (spread + 1.0) / spread * math.log(math.sqrt(spread + 1.0) / _ALPHA))
