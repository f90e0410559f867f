"""The grid of u: which cell a number in [0, 1] falls into.

Cell c holds edge[c-1] < u ≤ edge[c], so that "escalate u above edge[c]" keeps cells 0 … c whole. The scalar and the
vectorised form look up the same edges and never disagree.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from schemas.traffic import GridSpec

#: Of e, so that the power is a finite number.
_GREATEST_EXPONENT = np.log(np.finfo(np.float64).max)


class Grid:
    """Logit-spaced cells of u.

    ``spec``: number of cells, and the u between which they lie; the outermost cells take what lies beyond.

    Examples
    --------
    >>> grid = Grid(GridSpec(cells=4, low=0.01, high=0.99))
    >>> grid.index(0.4), grid.index(0.0), grid.index(1.0)
    (1, 0, 3)
    >>> grid.indices(np.array([0.4, 0.0, 1.0])).tolist()
    [1, 0, 3]
    """

    def __init__(self, spec: GridSpec) -> None:
        self.spec = spec
        self.cells = spec.cells
        bounds = np.linspace(_logit(spec.low), _logit(spec.high), spec.cells + 1)
        self.edges = _expit(bounds[1:-1])
        self.logits = (bounds[:-1] + bounds[1:]) / 2.0
        self.centres = _expit(self.logits)
        self._edge_list: list[float] = self.edges.tolist()

    def index(self, uncertainty: float) -> int:
        """Return the cell of one u in [0, 1]."""
        return bisect_left(self._edge_list, uncertainty)

    def indices(self, uncertainty: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cells of many u, same shape."""
        return np.searchsorted(self.edges, uncertainty, side="left")

    @cached_property
    def standard_logits(self) -> NDArray[np.float64]:
        """Logits of the cells' centres, shifted and scaled to [-1, 1]."""
        middle, half = (self.logits[0] + self.logits[-1]) / 2.0, (self.logits[-1] - self.logits[0]) / 2.0
        scaled: NDArray[np.float64] = (self.logits - middle) / half
        return scaled


def _expit(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return u of logits, however far from 0; without scipy's, which is an extra that the join lacks."""
    return 1.0 / (1.0 + np.exp(np.minimum(-logits, _GREATEST_EXPONENT)))


def _logit(value: float) -> float:
    return float(np.log(value / (1.0 - value)))
