"""The columns of the table of contributions: one labelled query a row, everything about it a float."""

from __future__ import annotations

ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR, PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE = range(9)
OUTCOMES = 9
"""First come the outcomes: a, d and z² of the small answer, its error, whether both ran, a, d and z² of the large."""

GROUP, ROUTED_US, LABELLED_US, REVISION, COUNTS, PREDICTED, LABEL_PROBABILITY = range(OUTCOMES, OUTCOMES + 7)
COLUMNS = OUTCOMES + 7
"""Then the facts; all integers among them are exact in a float. ``COUNTS`` is -1 of what was withdrawn, 0 where no
label was requested (kept, but outside the estimates), 1 of what counts; ``PREDICTED`` is NaN where g(u) is unknown."""
