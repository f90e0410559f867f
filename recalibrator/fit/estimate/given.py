"""How often the small answer is wrong where both answers are equal, and where they differ.

Sums over labels flow in, two curves over u flow out, against which later labels are held.
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.data.decayed_sums import SLOW, SLOW_SQUARE
from recalibrator.fit.data.table import ERROR, PAIR
from recalibrator.fit.estimate.outcome_curves import cell_sums
from recalibrator.fit.estimate.smoothing import Family, Floats, shrunk_local_linear
from recalibrator.fit.method_constants import Tuning

_LEAST_ERROR = 0.005


def error_given_agreement(groups: Floats, tuning: Tuning) -> Floats:
    """Return P(the small answer is wrong | u, the answers differ), and the same where they are equal.

    Parameters
    ----------
    groups : ndarray, shape (``SUMS``, groups)
        Of labels, in the groups of :class:`~recalibrator.fit.data.label_table.LabelWindow`.
    tuning : Tuning

    Returns
    -------
    ndarray, shape (2, cells)
        In [0.005, 0.995].
    """
    sums = cell_sums(groups[SLOW], groups[SLOW_SQUARE])
    related, wide = sums.by_relation[1:], tuning.wide_bandwidth_cells
    family = Family(
        tuning.related_bandwidth_cells, related[:, :, PAIR], sums.square[1:], related[:, :, ERROR], np.arange(2)
    )
    return inside(shrunk_local_linear((family,), wide, tuning.shrink_labels)[0].curves)


def inside(chance: Floats) -> Floats:
    """Return chances clipped to [0.005, 0.995]: what was never seen is not impossible."""
    clipped: Floats = np.minimum(np.maximum(chance, _LEAST_ERROR), 1.0 - _LEAST_ERROR)
    return clipped
