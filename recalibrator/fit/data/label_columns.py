"""The columns of the label table: one labelled query a row, everything about it a float."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR, PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE = range(9)
OUTCOMES = 9
"""First come the outcomes: a, d and z² of the small answer, its error, whether both ran, a, d and z² of the large."""


class Answers(NamedTuple):
    """The columns of one model's answers: whether there is one, and a, d and z²."""

    answers: int
    hits: int
    size: int
    squares: int


SMALL = Answers(ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL)
LARGE = Answers(PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE)

GROUP, ROUTED_US, LABELLED_US, REVISION, STANDING, PREDICTED = range(OUTCOMES, OUTCOMES + 6)
LABEL_PROBABILITY, LABELER, SERIAL, SERVED_SMALL, SERVED_LARGE = range(OUTCOMES + 6, OUTCOMES + 11)
COLUMNS = OUTCOMES + 11
"""Then the facts; all integers among them are exact in a float. ``PREDICTED`` is NaN where g(u) is unknown, ``LABELER``
is the labeler's number (``NOBODY`` where none is named), ``SERIAL`` as which label it came, ``STANDING`` a
:class:`Standing`, and ``SERVED_SMALL`` and ``SERVED_LARGE`` how many queries the label stands for that were served the
small model's answer, and the large one's."""

#: A label weighs no more than a thousand queries, however seldom it was asked for.
LEAST_PROPENSITY = 1e-3

NOBODY, OTHERS = -1.0, 0.0
"""No labeler is named; one of the labelers beyond those kept separately by name."""


class Standing(IntEnum):
    """As what a label stands in the estimates: above 0, it counts."""

    DISTRUSTED = -3
    """Given by a labeler who is set aside."""
    WITHDRAWN = -1
    UNREQUESTED = 0
    """Not asked for, hence outside the estimates."""
    COUNTED = 1
    """An ordinary label."""
    AUDITED = 2
    """A trusted answer to an audit."""
    ANSWERED = 3
    """An answer to an audit where the workload names nobody as trusted."""
