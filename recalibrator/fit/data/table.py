"""The columns of the table of contributions: one labelled query a row, everything about it a float."""

from __future__ import annotations

ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR, PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE = range(9)
OUTCOMES = 9
"""First come the outcomes: a, d and z² of the small answer, its error, whether both ran, a, d and z² of the large."""

(
    GROUP,
    ROUTED_US,
    LABELLED_US,
    REVISION,
    COUNTS,
    PREDICTED,
    LABEL_PROBABILITY,
    LABELER,
    FIRST_ERROR,
    SERIAL,
) = range(OUTCOMES, OUTCOMES + 10)
COLUMNS = OUTCOMES + 10
"""Then the facts; all integers among them are exact in a float. ``PREDICTED`` is NaN where g(u) is unknown, ``LABELER``
is the labeler's number (``NOBODY`` where none is named), ``FIRST_ERROR`` the error by the query's first label,
``SERIAL`` as which label it came, and ``COUNTS`` is one of the following, above 0 for what counts."""

DISTRUSTED, SET_ASIDE, WITHDRAWN, UNREQUESTED, COUNTED, AUDITED, ANSWERED = -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0
"""By a labeler who is set aside; in quarantine; withdrawn; not asked for, hence outside the estimates; an ordinary
label; a trusted answer to an audit; an answer to one where the workload names nobody as trusted."""

NOBODY, OTHERS = -1.0, 0.0
"""No labeler is named; one of the labelers beyond those that are kept apart by name."""
