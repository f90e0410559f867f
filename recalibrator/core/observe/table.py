"""The columns of the table of contributions: one labelled query a row, everything about it a float."""

from __future__ import annotations

ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR, PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE = range(9)
OUTCOMES = 9
"""First come the outcomes: a, d and z² of the small answer, its error, whether both ran, a, d and z² of the large."""

GROUP, ROUTED_US, LABELLED_US, REVISION, COUNTS, PREDICTED, LABEL_PROBABILITY = range(OUTCOMES, OUTCOMES + 7)
COLUMNS = OUTCOMES + 7
"""Then the facts; all integers among them are exact in a float. ``PREDICTED`` is NaN where g(u) is unknown, and
``COUNTS`` is one of the following, above 0 for what counts."""

SET_ASIDE, WITHDRAWN, UNREQUESTED, COUNTED, AUDITED = -2.0, -1.0, 0.0, 1.0, 2.0
"""In quarantine; withdrawn; not asked for, hence outside the estimates; an ordinary label; a trusted answer."""
